//! Dials TCP ports for a server and passes the connected sockets.

use super::Agent;
use crate::connection::Role;
use crate::port::{DIAL_WAIT, Dial, DialState, listening};
use crate::reactor::Timer;
use crate::reactor::poll::EventSource;
use isolet_wire::response::{AgentResponse, RefusalReason};
use rustix::event::epoll::EventFlags;

/// Maximum number of dials in progress.
const DIALS_MAX: usize = 512;

impl Agent {
    pub(super) fn dial(&mut self, id: u64, port: u16) {
        let free = self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready));
        if !free || port == 0 || self.dials.values().any(|dial| dial.conn == id) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
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
            Err((reason, message)) => self.refuse(id, None, reason, message),
            Ok(dial) => {
                let number = self.reactor.next_id();
                self.dials.insert(number, dial);
                // On the loopback interface, most results are known at once.
                self.check_dial(number, true);
            }
        }
    }

    /// The socket of a dial is ready, or its timeout has passed.
    pub(super) fn check_dial(&mut self, number: u64, new: bool) {
        let Some(dial) = self.dials.get_mut(&number) else { return };
        let conn = dial.conn;
        let (reason, message) = match dial.poll() {
            DialState::Connected => return self.hand_over(number),
            DialState::Refused(reason, message) => (reason, message),
            DialState::Pending(_) if dial.due <= self.reactor.now => dial.timeout_error(),
            DialState::Pending(changed) => {
                let poll = &self.reactor.poll;
                if !new && !changed
                    || poll.add(&dial.fd, EventSource::Dial, number, EventFlags::OUT).is_ok()
                {
                    if new {
                        self.reactor.set_timer(self.reactor.now + DIAL_WAIT, Timer::Dial(number));
                    }
                    return;
                }
                (RefusalReason::ResourcesExhausted, "no socket can be waited for".to_owned())
            }
        };
        self.dials.remove(&number);
        self.refuse(conn, None, reason, message);
    }

    fn hand_over(&mut self, number: u64) {
        let Some(dial) = self.dials.remove(&number) else { return };
        self.reactor.poll.remove(&dial.fd);
        let Some(conn) = self.conns.get_mut(&dial.conn) else { return };
        // A client that dials also reads. A connection that accepts nothing is closed.
        if conn.send_with_fd(&AgentResponse::Dialed, &dial.fd).is_err() {
            self.close_connection(dial.conn);
        }
    }

    pub(super) fn listening(&mut self, id: u64) {
        self.send(id, &AgentResponse::Listening(listening()));
    }
}
