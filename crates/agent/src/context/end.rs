//! Ends runs that do not end on their own, and interpreters.
//!
//! A timeout or an interrupt is SIGINT first, which every language makes an error of the run, and
//! once more in case the driver was between two runs; then SIGKILL to the interpreter and to all
//! that it started. The context stays, and its next run finds a new interpreter.

use super::killing::Killing;
use super::{Context, State};
use crate::process_tree;
use crate::reactor::{Reactor, Timer};
use crate::signals::{INT, KILL};
use isolet_sys::signal;
use isolet_wire::context::{self, ContextResponse, Died};
use isolet_wire::response::RefusalReason;
use std::time::{Duration, Instant};

/// From the first SIGINT to the second.
const AGAIN: Duration = Duration::from_secs(1);
/// From a timeout to the kill.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
/// From an interrupt to the kill: cleaning up may take a while, and nobody said when it must end.
const INTERRUPT_GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether all that was killed has ended, and until when.
const LOOK: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_secs(10);

impl Context {
    /// Interrupts what runs; whether anything did.
    pub(crate) fn interrupt(&mut self, reactor: &mut Reactor) -> bool {
        let Some(run) = self.run.as_mut().filter(|run| !run.done) else { return false };
        run.end.interrupted = true;
        if self.bash.is_some() {
            self.interrupt_bash(reactor);
            return true;
        }
        let kill_at = reactor.now + INTERRUPT_GRACE;
        run.kill_at = Some(run.kill_at.map_or(kill_at, |at| at.min(kill_at)));
        reactor.set_timer(reactor.now + AGAIN, Timer::Context(self.id));
        reactor.set_timer(kill_at, Timer::Context(self.id));
        self.send_interrupt();
        true
    }

    /// What waits or runs for this connection is not wanted any more.
    pub(crate) fn cancel(&mut self, reactor: &mut Reactor, conn: u64) {
        if self.client() == Some(conn) {
            self.interrupt(reactor);
        } else if let Some(at) = self.queue.iter().position(|one| one.conn == conn) {
            self.queue.remove(at);
            self.refusals
                .push((conn, (RefusalReason::BadAsk, "it was cancelled before it began".into())));
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

    /// Its timer went off.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor) {
        let now = reactor.now;
        if self.killing.as_ref().is_some_and(|killing| now >= killing.look_at) {
            self.check_killed(reactor);
        }
        let late = self.state == State::Starting
            && self.interpreter.as_ref().is_some_and(|interpreter| now >= interpreter.ready_by);
        if late && self.killing.is_none() {
            let text = "the interpreter was not ready in 30 seconds".to_owned();
            self.fail_to_start(reactor, (RefusalReason::Failed, text));
        }
        // A shell heeds its timeouts by itself.
        let runs = |run: &&mut super::Run| !run.done && self.bash.is_none();
        let Some(run) = self.run.as_mut().filter(runs) else { return };
        if now >= run.due && !run.end.timed_out {
            run.end.timed_out = true;
            run.kill_at = Some(now + TIMEOUT_GRACE);
            reactor.set_timer(now + AGAIN, Timer::Context(self.id));
            reactor.set_timer(now + TIMEOUT_GRACE, Timer::Context(self.id));
            return self.send_interrupt();
        }
        match run.kill_at {
            Some(at) if now >= at => self.kill(reactor),
            Some(_) => self.send_interrupt(),
            None => {}
        }
    }

    /// Kills its interpreter and everything that it started.
    pub(super) fn kill(&mut self, reactor: &mut Reactor) {
        let interpreter = self.interpreter.as_ref().map(|interpreter| interpreter.pid);
        let Some(pid) = interpreter.or(self.bash.as_ref().map(|bash| bash.pid)) else { return };
        self.kill_all_of(reactor, pid);
    }

    /// Kills an interpreter of this process id, where it still runs, and everything that it started.
    pub(super) fn kill_all_of(&mut self, reactor: &mut Reactor, pid: i32) {
        if self.killing.is_none() && pid > 0 {
            self.killing = Some(Killing { pid, began: reactor.now, look_at: reactor.now });
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

    /// Its interpreter's process has ended.
    pub(crate) fn on_exit(
        &mut self,
        reactor: &mut Reactor,
        code: Option<i32>,
        signal: Option<i32>,
    ) {
        self.on_exec_status(reactor);
        let Some(interpreter) = &mut self.interpreter else { return };
        interpreter.died = Some(Died { code, signal });
        interpreter.count_output_before_frame();
    }

    /// All that it said was handed on: it is forgotten, and what it left is ended.
    pub(super) fn on_interpreter_gone(&mut self, reactor: &mut Reactor) -> Option<ContextResponse> {
        let interpreter = self.interpreter.as_ref()?;
        let died = interpreter.died?;
        if self.state == State::Starting && self.killing.is_none() {
            let said = String::from_utf8_lossy(&self.late[1]).into_owned();
            let said = said.trim_end().lines().last().unwrap_or_default().to_owned();
            let text = format!("the interpreter ended before it was ready: {said}");
            self.fail_to_start(reactor, (RefusalReason::Failed, text));
        }
        self.kill(reactor);
        if let Some(interpreter) = self.interpreter.take() {
            interpreter.pipes.into_iter().flatten().for_each(|fd| reactor.drain(fd));
        }
        self.state = State::Gone;
        self.late = [Vec::new(), Vec::new()];
        self.check_killed(reactor);
        reactor.notify_watchers(self.id);
        self.run.is_some().then(|| self.finish(reactor, Some(died)))
    }

    /// The run is over.
    pub(super) fn finish(&mut self, reactor: &mut Reactor, died: Option<Died>) -> ContextResponse {
        let Some(run) = self.run.take() else {
            return ContextResponse::End(context::End::default());
        };
        if died.is_none() {
            self.state = State::Idle;
        }
        reactor.notify_watchers(self.id);
        let oom = reactor.oom_kills(false) > run.oom;
        let micros = Instant::now().duration_since(run.began).as_micros() as u64;
        ContextResponse::End(context::End { oom, died, micros, ..run.end })
    }

    /// Ends its interpreter, to begin with a new one.
    pub(crate) fn restart(&mut self, reactor: &mut Reactor, conn: u64) {
        self.openers.push(conn);
        self.refuse_queue(RefusalReason::NoShell, "the context was restarted");
        if let Some(run) = &mut self.run {
            run.end.interrupted = true;
        }
        self.kill(reactor);
    }

    /// Ends it for good.
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
