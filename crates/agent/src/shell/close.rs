//! The end of a shell, on its own or on request.

use super::bash::Bash;
use super::close_state::CloseState;
use super::state::{CloseProgress, EndedBash};
use super::{Shell, ShellState};
use crate::process_tree::{self, ProcessHandle};
use crate::reactor::Reactor;
use crate::signals::{HUP, KILL};
use isolet_sys::signal;
use isolet_wire::activity::CloseCause;
use isolet_wire::response::{Closed, RefusalReason, STDERR, STDOUT};
use std::time::Duration;

/// Time between SIGHUP and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);
/// Time between two checks whether everything has ended.
const LOOK: Duration = Duration::from_millis(10);

impl Shell {
    /// Ends the shell and everything that it started: SIGHUP first, and SIGKILL after 200 ms.
    pub(crate) fn close(&mut self, reactor: &mut Reactor, cause: CloseCause) {
        reactor.pending.shells.mark(self.id);
        if self.is_closing() {
            return;
        }
        self.refuse_queue(RefusalReason::NoShell, "the shell was closed");
        let Some(bash) = self.state.bash() else {
            self.close_progress = CloseProgress::Done;
            return;
        };
        let pid = bash.pid;
        let started = process_tree::descendants(pid, |pid| reactor.children.contains_key(&pid));
        for process in &started {
            process.send(HUP);
        }
        let _ = signal::send(pid, HUP);
        self.close_progress = CloseProgress::Closing(CloseState {
            cause,
            kill_at: reactor.now + GRACE,
            look_at: reactor.now + LOOK,
            killed: false,
            started,
            closed: None,
        });
    }

    pub(super) fn closing_elapsed(&mut self, reactor: &mut Reactor) {
        let pid = self.pid();
        let CloseProgress::Closing(closing) = &mut self.close_progress else { return };
        if closing.closed.is_some() && !closing.started.iter().any(ProcessHandle::is_alive) {
            self.closed_whole();
            return;
        }
        closing.look_at = reactor.now + LOOK;
        if reactor.now < closing.kill_at {
            return;
        }
        if pid != 0 {
            let more = process_tree::descendants(pid, |pid| reactor.children.contains_key(&pid));
            closing.started.extend(more);
            let _ = signal::send(pid, KILL);
        }
        for process in &closing.started {
            process.send(KILL);
        }
        closing.killed = true;
        if closing.closed.is_some() {
            self.closed_whole();
        }
    }

    /// Bash and everything that it started have ended.
    fn closed_whole(&mut self) {
        let progress = std::mem::replace(&mut self.close_progress, CloseProgress::Done);
        if let CloseProgress::Closing(CloseState { closed: Some(closed), .. }) = progress {
            self.log.closed(closed);
        }
    }

    /// Bash has ended with this code or signal.
    pub(crate) fn on_exit(
        &mut self,
        reactor: &mut Reactor,
        code: Option<i32>,
        signal: Option<i32>,
    ) {
        reactor.pending.shells.mark(self.id);
        reactor.notify_watchers_now(self.id);
        // Another descriptor, which may not have been read yet, tells whether bash was executed at
        // all.
        let pid = self.pid();
        self.on_exec_status(reactor);
        if self.pid() != pid {
            return;
        }
        let Some(left) = self.state.bash().map(Bash::unread_output) else { return };
        for (stream, mut left) in [(STDOUT, left[0]), (STDERR, left[1])] {
            while left > 0 {
                match self.pull(reactor, stream, left) {
                    0 => break,
                    count => left -= count.min(left),
                }
            }
        }
        let number = code.unwrap_or_else(|| 128 + signal.unwrap_or(0));
        self.finish(reactor, Some((number, signal)));
        let unused = !self.ready();
        let restoring = self.state_died(reactor);
        let kill_cause = self.kill_cause.take();
        let own_cause = if code.is_some() { CloseCause::Exit } else { CloseCause::Killed };
        let cause = match &self.close_progress {
            CloseProgress::Closing(closing) => closing.cause.clone(),
            CloseProgress::NotRequested | CloseProgress::Done => kill_cause.unwrap_or(own_cause),
        };
        let closed = Closed { code, signal, cause };
        let next = if restoring {
            ShellState::NotStarted
        } else {
            ShellState::Ended(EndedBash { closed: closed.clone(), at: reactor.now })
        };
        let Some(bash) = self.enter(next) else { return };
        // Background processes of the shell may continue to write.
        [bash.out, bash.err].into_iter().flatten().for_each(|fd| reactor.drain(fd));
        self.steps.awaited = None;
        self.steps.resync = None;
        self.history.texts.clear();
        self.history.bytes = 0;
        if restoring {
            return self.start(reactor);
        }
        if let CloseProgress::Closing(closing) = &mut self.close_progress {
            closing.closed = Some(closed);
            closing.look_at = reactor.now;
            self.closing_elapsed(reactor);
            return;
        }
        self.log.closed(closed);
        if !self.is_session() || unused {
            self.refuse_queue(RefusalReason::NoShell, "the shell has ended");
        } else if !self.queue.is_empty() {
            self.start(reactor);
        }
    }
}
