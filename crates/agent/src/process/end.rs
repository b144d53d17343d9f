//! The end of a process: on its own, by its timeout, or on request. The process is over when all of
//! its descendants have ended.

use super::Process;
use super::kill_state::KillState;
use super::phase::{EndedProgram, Phase};
use crate::process_tree;
use crate::reactor::{Reactor, Timer};
use crate::signals::{KILL, TERM};
use isolet_clock::now_ms;
use isolet_sys::signal;
use isolet_wire::process::ProcessEnd;
use std::time::{Duration, Instant};

/// Time between a timeout's signal and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// First pause before killed processes are checked again. The kernel may take a while.
const AGAIN: Duration = Duration::from_millis(10);
const AGAIN_MAX: Duration = Duration::from_secs(1);

impl Process {
    /// Sends a signal to the program's process group or to all descendants. Returns `false` if the
    /// process has ended.
    pub(crate) fn signal(&self, reactor: &Reactor, number: i32, all: bool) -> bool {
        match (&self.group, all) {
            (Some(group), true) => group.signal(reactor, number),
            (None, true) if !self.has_ended() => {
                let below =
                    process_tree::descendants(self.pid, |pid| reactor.children.contains_key(&pid));
                below.iter().for_each(|process| process.send(number));
                self.signal_program(number);
            }
            (_, false) if !self.has_ended() => self.signal_program(number),
            _ => return false,
        }
        true
    }

    /// A program that was only just started may not have its own group yet.
    fn signal_program(&self, number: i32) {
        if signal::send(-self.pid, number).is_err() {
            let _ = signal::send(self.pid, number);
        }
    }

    /// Ends the process and all descendants: with this signal first, unless it is 9, and after
    /// `grace` with SIGKILL. If there are several requests, the earliest moment counts.
    pub(crate) fn kill(&mut self, reactor: &mut Reactor, number: i32, grace: Duration) {
        reactor.pending.processes.mark(self.id);
        if self.is_over() {
            return;
        }
        self.causes.killed |= !self.has_ended() && !self.causes.timed_out;
        let grace = if number == KILL { Duration::ZERO } else { grace };
        if !grace.is_zero() {
            self.signal(reactor, number, true);
        }
        let at = reactor.now + grace;
        match &mut self.kill_state {
            Some(state) => state.kill_at = state.kill_at.min(at),
            None => self.kill_state = Some(KillState { kill_at: at, retry_interval: AGAIN }),
        }
        self.on_timer(reactor);
    }

    fn kill_all(&self, reactor: &Reactor) {
        if self.group.as_ref().is_some_and(|group| group.kill(reactor).is_ok()) {
            return;
        }
        let below = process_tree::descendants(self.pid, |pid| reactor.children.contains_key(&pid));
        // After the program was reaped, another process may have its id. Its orphans are recognised
        // by their session.
        if !self.has_ended() {
            self.signal_program(KILL);
        }
        below.iter().for_each(|process| process.send(KILL));
        if let Some(group) = &self.group {
            group.signal(reactor, KILL);
        }
    }

    fn timeout(&self) -> Option<Instant> {
        if self.causes.timed_out || self.has_ended() || self.request.timeout_ms == 0 {
            return None;
        }
        self.started_at.checked_add(Duration::from_millis(self.request.timeout_ms))
    }

    /// The timer has expired.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor) {
        if self.timer_at.is_some_and(|armed| armed <= reactor.now) {
            self.timer_at = None;
        }
        reactor.pending.processes.mark(self.id);
        if self.timeout().is_some_and(|due| due <= reactor.now) {
            self.causes.timed_out = true;
            self.kill(reactor, TERM, GRACE);
        }
        let Some(state) = &mut self.kill_state else { return };
        if state.kill_at <= reactor.now {
            state.kill_at = reactor.now + state.retry_interval;
            state.retry_interval = (state.retry_interval * 2).min(AGAIN_MAX);
            self.kill_all(reactor);
            self.on_group_changed(reactor);
        }
    }

    /// Sets the timer for what is due next.
    pub(super) fn arm_timer(&mut self, reactor: &mut Reactor, waits: Option<Instant>) {
        let kill_at = self.kill_state.as_ref().map(|state| state.kill_at);
        let next = [waits, self.timeout(), kill_at].into_iter().flatten().min();
        if let Some(next) = next.filter(|next| self.timer_at.is_none_or(|armed| *next < armed)) {
            self.timer_at = Some(next);
            reactor.set_timer(next, Timer::Process(self.id));
        }
    }

    /// The program has ended.
    pub(crate) fn on_exit(
        &mut self,
        reactor: &mut Reactor,
        code: Option<i32>,
        number: Option<i32>,
    ) {
        reactor.pending.processes.mark(self.id);
        self.drain_pipes(reactor);
        self.io.stdin = None;
        self.io.input = Vec::new();
        let status = ProcessEnd {
            code: code.unwrap_or_else(|| 128 + number.unwrap_or(0)),
            signal: number,
            timed_out: self.causes.timed_out,
            killed: self.causes.killed,
            oom: reactor.oom_kills(false) > self.causes.oom_kills_before,
            at_ms: now_ms(),
            micros: reactor.clock.now().duration_since(self.started_at).as_micros() as u64,
        };
        let output_end = self.output.journal.head();
        self.enter(Phase::Ended(EndedProgram { status, output_end }));
        self.on_group_changed(reactor);
    }

    /// The membership of the cgroup may have changed.
    pub(crate) fn on_group_changed(&mut self, reactor: &mut Reactor) {
        reactor.pending.processes.mark(self.id);
        let left = self.group.as_mut().is_some_and(|group| group.look());
        if left || !matches!(self.phase, Phase::Ended(_)) {
            return;
        }
        self.drain_pipes(reactor);
        match &self.group {
            // A process that left the cgroup's reach may hold the pipes. They are still read so
            // that it can continue.
            None => {
                self.io.pipes.iter_mut().filter_map(Option::take).for_each(|fd| reactor.drain(fd))
            }
            Some(_) => self.io.pipes = [None, None],
        }
        self.leave_group(reactor);
    }

    /// Removes the cgroup of an ended process once it is empty, and retries if it is not.
    fn leave_group(&mut self, reactor: &mut Reactor) {
        let Phase::Ended(ended) = &self.phase else { return };
        if self.group.as_ref().is_none_or(|group| group.remove(reactor)) {
            let ended = ended.clone();
            self.group = None;
            self.enter(Phase::Over(ended));
        } else if self.kill_state.is_none() {
            self.kill_state =
                Some(KillState { kill_at: reactor.now + AGAIN, retry_interval: AGAIN });
        }
    }
}
