//! The end of a terminal, with its program or on request.

use super::close_state::{CloseProgress, CloseState};
use super::state::EndedProgram;
use super::{Terminal, TerminalState};
use crate::process_tree::{self, ProcessHandle};
use crate::reactor::{READ_BYTES, Reactor};
use crate::signals::{HUP, KILL};
use isolet_sys::signal;
use isolet_wire::activity::CloseCause;
use isolet_wire::response::Closed;
use std::time::{Duration, Instant};

/// Time between SIGHUP and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);
/// Time between two checks whether everything has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum amount read from an ended program's PTY, in bytes. The kernel holds less, but other
/// processes may still write.
const LAST_BYTES_MAX: usize = 4 * READ_BYTES;

impl Terminal {
    /// Hangs up, and kills what is left of the terminal's session after 200 ms.
    pub(crate) fn close(&mut self, reactor: &mut Reactor) {
        reactor.pending.terminals.mark(self.id);
        if !self.is_running() {
            return;
        }
        let started =
            process_tree::descendants(self.pid, |pid| reactor.children.contains_key(&pid));
        self.drain_pty(reactor);
        // The kernel signals the foreground group that its terminal is gone. The agent signals the
        // others.
        self.pty.master = None;
        self.pty.input.clear();
        started.iter().for_each(|process| process.send(HUP));
        let _ = signal::send(self.pid, HUP);
        let kill_at = reactor.now + GRACE;
        self.close_progress =
            CloseProgress::Closing(CloseState { kill_at, killed: false, started });
    }

    pub(super) fn closing_due(&self, now: Instant) -> Option<Instant> {
        let CloseProgress::Closing(closing) = &self.close_progress else { return None };
        let ended = matches!(self.state, TerminalState::Ended(_));
        if closing.killed && !ended {
            // Only the exit of the program itself is missing, which is reported by an event.
            return None;
        }
        Some(if ended { closing.kill_at.min(now + LOOK) } else { closing.kill_at })
    }

    pub(super) fn closing_elapsed(&mut self, reactor: &mut Reactor) {
        let ended = !self.state.has_program();
        let pid = self.pid;
        let CloseProgress::Closing(closing) = &mut self.close_progress else { return };
        if reactor.now >= closing.kill_at && !closing.killed {
            let more = process_tree::descendants(pid, |pid| reactor.children.contains_key(&pid));
            // After the program was reaped, another process may have its id. Its orphans are
            // recognised by their session.
            closing.started.extend(more.iter().filter(|one| !ended || one.session == pid));
            closing.killed = true;
            closing.started.iter().for_each(|process| process.send(KILL));
            if !ended {
                let _ = signal::send(pid, KILL);
            }
        }
        if ended && (closing.killed || !closing.started.iter().any(ProcessHandle::is_alive)) {
            self.close_progress = CloseProgress::Done;
            reactor.pending.terminals.mark(self.id);
        }
    }

    /// The program has ended with this code or signal.
    pub(crate) fn on_exit(
        &mut self,
        reactor: &mut Reactor,
        code: Option<i32>,
        number: Option<i32>,
    ) {
        reactor.pending.terminals.mark(self.id);
        reactor.notify_watchers_now(self.id);
        // Another descriptor, which may not have been read yet, tells whether the program was
        // executed at all.
        self.on_exec_status(reactor);
        if !self.state.has_program() {
            return;
        }
        self.drain_pty(reactor);
        let cause = match (&self.close_progress, code) {
            (CloseProgress::Closing(_) | CloseProgress::Done, _) => CloseCause::ClosedByClient,
            (CloseProgress::NotRequested, Some(_)) => CloseCause::Exit,
            (CloseProgress::NotRequested, None) => CloseCause::Killed,
        };
        self.pty.master = None;
        self.pty.input.clear();
        let closed = Closed { code, signal: number, cause };
        self.enter(TerminalState::Ended(EndedProgram { closed, at: reactor.now }));
        self.closing_elapsed(reactor);
    }

    /// Reads what is already in the PTY, but not what other processes may still write.
    fn drain_pty(&mut self, reactor: &mut Reactor) {
        let end = self.ring.head() + LAST_BYTES_MAX as u64;
        self.pty.readable = true;
        while self.pull(reactor) && self.ring.head() < end {}
    }
}
