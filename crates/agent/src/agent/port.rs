//! Connections that are made for a server: started, awaited, and handed over.

use super::Agent;
use crate::connection::Role;
use crate::port::{DIAL_WAIT, Dial, DialState, listening};
use crate::reactor::Timer;
use crate::reactor::poll::Source;
use isolet_wire::response::{AgentResponse, RefusalReason};
use rustix::event::epoll::EventFlags;

/// Dials at once.
const DIALS_MAX: usize = 512;

impl Agent {
    pub(super) fn dial(&mut self, id: u64, port: u16) {
        let free = self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready));
        if !free || port == 0 || self.dials.values().any(|dial| dial.conn == id) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadAsk,
                "this connection cannot dial that now",
            );
        }
        if self.dials.len() >= DIALS_MAX {
            return self.refuse(
                id,
                None,
                RefusalReason::TooMany,
                format!("at most {DIALS_MAX} dials"),
            );
        }
        match Dial::begin(id, port, self.reactor.now) {
            Err((why, message)) => self.refuse(id, None, why, message),
            Ok(dial) => {
                let number = self.reactor.next_id();
                self.dials.insert(number, dial);
                // On one's own loopback most are known at once.
                self.check_dial(number, true);
            }
        }
    }

    /// A socket under way is ready, or its time is over.
    pub(super) fn check_dial(&mut self, number: u64, new: bool) {
        let Some(dial) = self.dials.get_mut(&number) else { return };
        let conn = dial.conn;
        let (why, message) = match dial.poll() {
            DialState::Connected => return self.hand_over(number),
            DialState::Refused(why, message) => (why, message),
            DialState::Pending(_) if dial.due <= self.reactor.now => dial.timeout_error(),
            DialState::Pending(changed) => {
                let poll = &self.reactor.poll;
                if !new && !changed
                    || poll.add(&dial.fd, Source::Dial, number, EventFlags::OUT).is_ok()
                {
                    if new {
                        self.reactor.set_timer(self.reactor.now + DIAL_WAIT, Timer::Dial(number));
                    }
                    return;
                }
                (RefusalReason::Short, "no socket can be waited for".to_owned())
            }
        };
        self.dials.remove(&number);
        self.refuse(conn, None, why, message);
    }

    fn hand_over(&mut self, number: u64) {
        let Some(dial) = self.dials.remove(&number) else { return };
        self.reactor.poll.remove(&dial.fd);
        let Some(conn) = self.conns.get_mut(&dial.conn) else { return };
        // A client that dials also reads; a connection that takes nothing is closed.
        if conn.send_with_fd(&AgentResponse::Dialed, &dial.fd).is_err() {
            self.close_connection(dial.conn);
        }
    }

    pub(super) fn listening(&mut self, id: u64) {
        self.send(id, &AgentResponse::Listening(listening()));
    }
}
