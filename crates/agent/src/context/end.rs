//! Ends runs that do not end on their own, and interpreters.
//!
//! A timeout or an interrupt first sends SIGINT, which every language turns into an error of the
//! run. It is sent a second time in case the driver was between two runs. Then SIGKILL ends the
//! interpreter and everything that it started. The context remains, and its next run starts a new
//! interpreter. Only time counts in which the interpreter could react ([`crate::reaction`]), because
//! all of its variables are lost with it.

use super::kill_state::KillState;
use super::{Context, ContextState, EndingRun};
use crate::process_tree;
use crate::reaction::ReactionWait;
use crate::reactor::{Reactor, Timer};
use crate::signals::{INT, KILL};
use isolet_sys::signal;
use isolet_wire::context::{self, ContextResponse, InterpreterExit};
use isolet_wire::response::RefusalReason;
use std::time::Duration;

/// Time between the first and the second SIGINT.
const AGAIN: Duration = Duration::from_secs(1);
/// Time between a timeout and SIGKILL.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
/// Time between an interrupt and SIGKILL. Cleaning up may take a while, and no timeout limits it.
const INTERRUPT_GRACE: Duration = Duration::from_secs(10);
/// Pause between two checks whether everything that was killed has ended.
const LOOK: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_secs(10);

impl Context {
    /// Interrupts the current run. Returns whether there was one.
    pub(crate) fn interrupt(&mut self, reactor: &mut Reactor) -> bool {
        let Some(run) = self.run.as_mut().filter(|run| !run.done) else { return false };
        run.end.interrupted = true;
        if self.bash.is_some() {
            self.interrupt_bash(reactor);
            return true;
        }
        let before = run.ending.take().map(|ending| ending.kill);
        self.begin_ending(reactor, before, INTERRUPT_GRACE);
        true
    }

    /// Interrupts the run. The interpreter is killed after `grace`, unless it already has a limit.
    fn begin_ending(&mut self, reactor: &mut Reactor, kill: Option<ReactionWait>, grace: Duration) {
        let pids = self.reacting_pids();
        let kill = kill.unwrap_or_else(|| ReactionWait::new(reactor.now, grace, pids.clone()));
        let again = Some(ReactionWait::new(reactor.now, AGAIN, pids));
        let ending = EndingRun { again, kill };
        reactor.set_timer(ending.next_look(), Timer::Context(self.id));
        if let Some(run) = self.run.as_mut() {
            run.ending = Some(ending);
        }
        self.send_interrupt();
    }

    /// The processes that must be able to react to an interrupt: the interpreter, and a kernel
    /// beside it.
    fn reacting_pids(&self) -> Vec<i32> {
        [self.pid(), self.kernel_pid()].into_iter().filter(|pid| *pid > 0).collect()
    }

    /// Removes or interrupts the run of this connection.
    pub(crate) fn cancel(&mut self, reactor: &mut Reactor, conn: u64) {
        if self.client() == Some(conn) {
            self.interrupt(reactor);
        } else if let Some(at) = self.queue.iter().position(|one| one.conn == conn) {
            self.queue.remove(at);
            self.refusals.push((
                conn,
                (RefusalReason::BadRequest, "it was cancelled before it began".into()),
            ));
        }
    }

    fn send_interrupt(&self) {
        if let Some(interpreter) =
            self.interpreter.as_ref().filter(|interpreter| interpreter.died.is_none())
        {
            if let Some(interrupt_pipe) = &interpreter.interrupt_pipe {
                let _ = rustix::io::write(interrupt_pipe, b"!");
            }
            let _ =
                signal::send(-interpreter.pid, INT).or_else(|_| signal::send(interpreter.pid, INT));
        }
    }

    /// The timer has expired.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor) {
        let now = reactor.now;
        if self.killing.as_ref().is_some_and(|killing| now >= killing.look_at) {
            self.check_killed(reactor);
        }
        let late = self.state == ContextState::Starting
            && self.interpreter.as_ref().is_some_and(|interpreter| now >= interpreter.ready_by);
        if late && self.killing.is_none() {
            let text = "the interpreter was not ready in 30 seconds".to_owned();
            self.fail_to_start(reactor, (RefusalReason::Failed, text));
        }
        // A shell handles its own timeouts.
        let runs = |run: &&mut super::ActiveRun| !run.done && self.bash.is_none();
        let Some(run) = self.run.as_mut().filter(runs) else { return };
        if now >= run.due && !run.end.timed_out {
            run.end.timed_out = true;
            self.begin_ending(reactor, None, TIMEOUT_GRACE);
            return;
        }
        self.check_ending(reactor);
    }

    /// Takes the next step against an interrupted run, if it is due.
    fn check_ending(&mut self, reactor: &mut Reactor) {
        let pids = self.reacting_pids();
        let Some(ending) = self.run.as_mut().and_then(|run| run.ending.as_mut()) else { return };
        if reactor.now < ending.next_look() {
            return;
        }
        if ending.kill.is_over(reactor.now, || pids.clone()) {
            return self.kill(reactor);
        }
        let again = ending.again.as_mut().is_some_and(|wait| wait.is_over(reactor.now, || pids));
        if again {
            ending.again = None;
        }
        reactor.set_timer(ending.next_look(), Timer::Context(self.id));
        if again {
            self.send_interrupt();
        }
    }

    /// Kills the interpreter and everything that it started.
    pub(super) fn kill(&mut self, reactor: &mut Reactor) {
        let interpreter = self.interpreter.as_ref().map(|interpreter| interpreter.pid);
        let Some(pid) = interpreter.or(self.bash.as_ref().map(|bash| bash.pid)) else { return };
        self.kill_all_of(reactor, pid);
    }

    /// Kills the interpreter with this process id, if it still runs, and everything that it
    /// started.
    pub(super) fn kill_all_of(&mut self, reactor: &mut Reactor, pid: i32) {
        if self.killing.is_none() && pid > 0 {
            self.killing = Some(KillState { pid, began: reactor.now, look_at: reactor.now });
        }
        self.check_killed(reactor);
    }

    fn check_killed(&mut self, reactor: &mut Reactor) {
        let live = self.pid() > 0;
        let Some(killing) = &mut self.killing else { return };
        let below =
            process_tree::descendants(killing.pid, |pid| reactor.children.contains_key(&pid));
        if live {
            let _ = signal::send(-killing.pid, KILL);
            let _ = signal::send(killing.pid, KILL);
        }
        below.iter().for_each(|process| process.send(KILL));
        let late = reactor.now.duration_since(killing.began) >= LOOK_MAX;
        if self.interpreter.is_none() && self.bash.is_none() && (below.is_empty() || late) {
            self.killing = None;
            reactor.notify_watchers(self.id);
            return;
        }
        killing.look_at = reactor.now + LOOK;
        reactor.set_timer(killing.look_at, Timer::Context(self.id));
    }

    /// The interpreter's process has ended.
    pub(crate) fn on_exit(
        &mut self,
        reactor: &mut Reactor,
        code: Option<i32>,
        signal: Option<i32>,
    ) {
        self.on_exec_status(reactor);
        let Some(interpreter) = &mut self.interpreter else { return };
        interpreter.died = Some(InterpreterExit { code, signal });
        interpreter.count_output_before_frame();
    }

    /// All output was forwarded: removes the interpreter and ends the processes that it left.
    pub(super) fn on_interpreter_gone(&mut self, reactor: &mut Reactor) -> Option<ContextResponse> {
        let interpreter = self.interpreter.as_ref()?;
        let died = interpreter.died?;
        let unasked = self.killing.is_none() || interpreter.never_ready;
        if self.state == ContextState::Starting && unasked {
            let said = String::from_utf8_lossy(&self.late[1]).into_owned();
            let said = said.trim_end().lines().last().unwrap_or_default().to_owned();
            let text = format!("the interpreter ended before it was ready: {said}");
            self.fail_to_start(reactor, (RefusalReason::Failed, text));
        }
        self.kill(reactor);
        if let Some(interpreter) = self.interpreter.take() {
            interpreter.pipes.into_iter().flatten().for_each(|fd| reactor.drain(fd));
        }
        self.state = ContextState::Gone;
        self.late = [Vec::new(), Vec::new()];
        self.check_killed(reactor);
        reactor.notify_watchers(self.id);
        self.run.is_some().then(|| self.finish(reactor, Some(died)))
    }

    /// Ends the current run.
    pub(super) fn finish(
        &mut self,
        reactor: &mut Reactor,
        died: Option<InterpreterExit>,
    ) -> ContextResponse {
        let Some(run) = self.run.take() else {
            return ContextResponse::RunEnded(context::ContextRunEnd::default());
        };
        if died.is_none() {
            self.state = ContextState::Idle;
        }
        reactor.notify_watchers(self.id);
        let oom = reactor.oom_kills(false) > run.oom;
        let micros = reactor.clock.now().duration_since(run.began).as_micros() as u64;
        ContextResponse::RunEnded(context::ContextRunEnd { oom, died, micros, ..run.end })
    }

    pub(crate) fn restart(&mut self, reactor: &mut Reactor, conn: u64) {
        self.openers.push(conn);
        self.refuse_queue(RefusalReason::NoShell, "the context was restarted");
        if let Some(run) = &mut self.run {
            run.end.interrupted = true;
        }
        self.kill(reactor);
    }

    pub(crate) fn close(&mut self, reactor: &mut Reactor, conn: u64) {
        self.closers.push(conn);
        self.closing = true;
        self.refuse_queue(RefusalReason::NoShell, "the context was deleted");
        let openers = std::mem::take(&mut self.openers);
        let refusal = (RefusalReason::NoShell, "the context was deleted".to_owned());
        self.refusals.extend(openers.into_iter().map(|one| (one, refusal.clone())));
        if let Some(run) = &mut self.run {
            run.end.interrupted = true;
        }
        self.kill(reactor);
    }
}
