//! The end of a terminal: with its program, or on request.

use super::closing::Closing;
use super::{State, Terminal};
use crate::process_tree::{self, Process};
use crate::reactor::{READ_BYTES, Reactor};
use crate::signals::{HUP, KILL};
use isolet_sys::signal;
use isolet_wire::activity::CloseCause;
use isolet_wire::response::Closed;
use std::time::{Duration, Instant};

/// From the hang-up to the kill.
const GRACE: Duration = Duration::from_millis(200);
/// How often it is looked whether everything has ended before that.
const LOOK: Duration = Duration::from_millis(10);
/// What is read of an ended program: the kernel holds less, and somebody else may still write.
const LAST_BYTES_MAX: usize = 4 * READ_BYTES;

impl Terminal {
    /// Hangs up, and kills what is left of its session after 200 ms.
    pub(crate) fn close(&mut self, reactor: &mut Reactor) {
        reactor.pending.terminals.mark(self.id);
        if self.closing.is_some() || !self.is_running() {
            return;
        }
        let started =
            process_tree::descendants(self.pid, |pid| reactor.children.contains_key(&pid));
        self.closing = Some(Closing { kill_at: reactor.now + GRACE, killed: false, started });
        self.drain_pty(reactor);
        // The kernel tells the foreground that its terminal is gone; the others hear it from us.
        self.master = None;
        self.input.clear();
        if let Some(closing) = &self.closing {
            closing.started.iter().for_each(|process| process.send(HUP));
        }
        let _ = signal::send(self.pid, HUP);
    }

    pub(super) fn closing_due(&self, now: Instant) -> Option<Instant> {
        let closing = self.closing.as_ref().filter(|_| !self.over)?;
        let ended = matches!(self.state, State::Ended(_));
        if closing.killed && !ended {
            // Only the end of the program itself is left, and that is told.
            return None;
        }
        Some(if ended { closing.kill_at.min(now + LOOK) } else { closing.kill_at })
    }

    pub(super) fn closing_elapsed(&mut self, reactor: &mut Reactor) {
        let ended = !matches!(self.state, State::Opening | State::Live);
        let pid = self.pid;
        let over = self.over;
        let Some(closing) = self.closing.as_mut().filter(|_| !over) else { return };
        if reactor.now >= closing.kill_at && !closing.killed {
            let more = process_tree::descendants(pid, |pid| reactor.children.contains_key(&pid));
            // Once it was reaped its number may be another's; its orphans are known by their session.
            closing.started.extend(more.iter().filter(|one| !ended || one.session == pid));
            closing.killed = true;
            closing.started.iter().for_each(|process| process.send(KILL));
            if !ended {
                let _ = signal::send(pid, KILL);
            }
        }
        if ended && (closing.killed || !closing.started.iter().any(Process::is_alive)) {
            self.over = true;
            reactor.pending.terminals.mark(self.id);
        }
    }

    /// Its program has ended with this code or signal.
    pub(crate) fn on_exit(
        &mut self,
        reactor: &mut Reactor,
        code: Option<i32>,
        number: Option<i32>,
    ) {
        reactor.pending.terminals.mark(self.id);
        reactor.notify_watchers_now(self.id);
        // Whether it was executed at all is told by another descriptor, perhaps not yet read.
        self.on_exec_status(reactor);
        if !matches!(self.state, State::Opening | State::Live) {
            return;
        }
        self.drain_pty(reactor);
        let cause = match (&self.closing, code) {
            (Some(_), _) => CloseCause::ClosedByClient,
            (None, Some(_)) => CloseCause::Exit,
            (None, None) => CloseCause::Killed,
        };
        self.master = None;
        self.input.clear();
        self.ended = Some(reactor.now);
        self.state = State::Ended(Closed { code, signal: number, cause });
        self.closing_elapsed(reactor);
    }

    /// Reads what lies in the PTY, and not what others that hold it may still say.
    fn drain_pty(&mut self, reactor: &mut Reactor) {
        let end = self.ring.head() + LAST_BYTES_MAX as u64;
        self.readable = true;
        while self.pull(reactor) && self.ring.head() < end {}
    }
}
