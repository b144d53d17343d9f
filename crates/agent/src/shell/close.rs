//! The end of a shell: on its own, or on request.

use super::bash::Bash;
use super::closing::Closing;
use super::{Shell, State};
use crate::process_tree::{self, Process};
use crate::reactor::Reactor;
use crate::signals::{HUP, KILL};
use isolet_sys::signal;
use isolet_wire::activity::CloseCause;
use isolet_wire::response::{Closed, RefusalReason, STDERR, STDOUT};
use std::time::Duration;

/// From the hang-up to the kill.
const GRACE: Duration = Duration::from_millis(200);
/// How often it is looked whether everything has ended before that.
const LOOK: Duration = Duration::from_millis(10);

impl Shell {
    /// Ends it and everything it started: hangs up, and kills what is left after 200 ms.
    pub(crate) fn close(&mut self, reactor: &mut Reactor, cause: CloseCause) {
        reactor.pending.shells.mark(self.id);
        if self.closing.is_some() {
            return;
        }
        self.refuse_queue(RefusalReason::NoShell, "the shell was closed");
        let Some(bash) = &self.bash else {
            self.over = true;
            return;
        };
        let pid = bash.pid;
        let started = process_tree::descendants(pid, |pid| reactor.children.contains_key(&pid));
        for process in &started {
            process.send(HUP);
        }
        let _ = signal::send(pid, HUP);
        self.closing = Some(Closing {
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
        let Some(closing) = self.closing.as_mut() else { return };
        if closing.closed.is_some() && !closing.started.iter().any(Process::is_alive) {
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

    /// Bash and all it started are gone.
    fn closed_whole(&mut self) {
        if let Some(closed) = self.closing.take().and_then(|closing| closing.closed) {
            self.log.closed(closed);
        }
        self.over = true;
    }

    /// Its bash has ended with this code or signal.
    pub(crate) fn on_exit(
        &mut self,
        reactor: &mut Reactor,
        code: Option<i32>,
        signal: Option<i32>,
    ) {
        reactor.pending.shells.mark(self.id);
        reactor.notify_watchers_now(self.id);
        // Whether it was executed at all is told by another descriptor, perhaps not yet read.
        let pid = self.pid();
        self.on_exec_status(reactor);
        if self.pid() != pid {
            return;
        }
        let Some(left) = self.bash.as_ref().map(Bash::unread_output) else { return };
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
        let Some(bash) = self.bash.take() else { return };
        let unused = !bash.ready;
        let restoring = self.state_died(reactor);
        // What it left running in the background may go on writing.
        [bash.out, bash.err].into_iter().flatten().for_each(|fd| reactor.drain(fd));
        self.awaited_step = None;
        self.resyncing = None;
        self.history.clear();
        self.history_bytes = 0;
        self.state = State::Dead;
        if restoring {
            return self.start(reactor);
        }
        let own_cause = if code.is_some() { CloseCause::Exit } else { CloseCause::Killed };
        let cause = self.close_cause.take().unwrap_or(own_cause);
        let mut closed = Closed { code, signal, cause };
        self.ended = Some((closed.clone(), reactor.now));
        if let Some(closing) = self.closing.as_mut() {
            closed.cause = closing.cause.clone();
            self.ended = Some((closed.clone(), reactor.now));
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
