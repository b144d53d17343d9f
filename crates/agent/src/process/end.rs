//! The end of a process: on its own, by its timeout, or on request. It is over only when nothing that
//! it started is alive.

use super::Process;
use super::killing::Killing;
use crate::process_tree;
use crate::reactor::{Reactor, Timer};
use crate::signals::{KILL, TERM};
use isolet_clock::now_ms;
use isolet_sys::signal;
use isolet_wire::process::End;
use std::time::{Duration, Instant};

/// From a timeout's signal to the end.
const GRACE: Duration = Duration::from_millis(500);
/// How soon what was killed is looked at again, at first and at most: the kernel may take its time.
const AGAIN: Duration = Duration::from_millis(10);
const AGAIN_MAX: Duration = Duration::from_secs(1);

impl Process {
    /// Sends a signal to its program's group, or to all that it started. `false`: it has ended.
    pub(crate) fn signal(&self, reactor: &Reactor, number: i32, all: bool) -> bool {
        match (&self.group, all) {
            (Some(group), true) => group.signal(reactor, number),
            (None, true) if self.end.is_none() => {
                let below =
                    process_tree::descendants(self.pid, |pid| reactor.children.contains_key(&pid));
                below.iter().for_each(|process| process.send(number));
                self.signal_program(number);
            }
            (_, false) if self.end.is_none() => self.signal_program(number),
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

    /// Ends all of it: by this signal first, where that is another than 9, and after `grace` whatever
    /// it does. Asked again, the earlier moment counts.
    pub(crate) fn kill(&mut self, reactor: &mut Reactor, number: i32, grace: Duration) {
        reactor.pending.processes.mark(self.id);
        if self.is_over() {
            return;
        }
        self.killed |= self.end.is_none() && !self.timed_out;
        let grace = if number == KILL { Duration::ZERO } else { grace };
        if !grace.is_zero() {
            self.signal(reactor, number, true);
        }
        let at = reactor.now + grace;
        match &mut self.killing {
            Some(killing) => killing.kill_at = killing.kill_at.min(at),
            None => self.killing = Some(Killing { kill_at: at, retry_interval: AGAIN }),
        }
        self.on_timer(reactor);
    }

    fn kill_all(&self, reactor: &Reactor) {
        if self.group.as_ref().is_some_and(|group| group.kill(reactor).is_ok()) {
            return;
        }
        let below = process_tree::descendants(self.pid, |pid| reactor.children.contains_key(&pid));
        // Once it was reaped its number may be another's; its orphans are known by their session.
        if self.end.is_none() {
            self.signal_program(KILL);
        }
        below.iter().for_each(|process| process.send(KILL));
        if let Some(group) = &self.group {
            group.signal(reactor, KILL);
        }
    }

    fn timeout(&self) -> Option<Instant> {
        if self.timed_out || self.end.is_some() || self.ask.timeout_ms == 0 {
            return None;
        }
        self.started_at.checked_add(Duration::from_millis(self.ask.timeout_ms))
    }

    /// Something of it may be due.
    pub(crate) fn on_timer(&mut self, reactor: &mut Reactor) {
        if self.timer_at.is_some_and(|armed| armed <= reactor.now) {
            self.timer_at = None;
        }
        reactor.pending.processes.mark(self.id);
        if self.timeout().is_some_and(|due| due <= reactor.now) {
            self.timed_out = true;
            self.kill(reactor, TERM, GRACE);
        }
        let due = self.killing.as_ref().is_some_and(|killing| killing.kill_at <= reactor.now);
        if due && !self.is_over() {
            self.kill_all(reactor);
            if let Some(killing) = &mut self.killing {
                killing.kill_at = reactor.now + killing.retry_interval;
                killing.retry_interval = (killing.retry_interval * 2).min(AGAIN_MAX);
            }
            self.on_group_changed(reactor);
        }
    }

    /// Sets its timer for what is due next.
    pub(super) fn arm_timer(&mut self, reactor: &mut Reactor, waits: Option<Instant>) {
        let killing =
            self.killing.as_ref().filter(|_| !self.is_over()).map(|killing| killing.kill_at);
        let next = [waits, self.timeout(), killing].into_iter().flatten().min();
        if let Some(next) = next.filter(|next| self.timer_at.is_none_or(|armed| *next < armed)) {
            self.timer_at = Some(next);
            reactor.set_timer(next, Timer::Process(self.id));
        }
    }

    /// Its program has ended.
    pub(crate) fn on_exit(
        &mut self,
        reactor: &mut Reactor,
        code: Option<i32>,
        number: Option<i32>,
    ) {
        reactor.pending.processes.mark(self.id);
        self.drain_pipes(reactor);
        self.own_output_end = self.journal.head();
        (self.stdin, self.input) = (None, Vec::new());
        self.end = Some(End {
            code: code.unwrap_or_else(|| 128 + number.unwrap_or(0)),
            signal: number,
            timed_out: self.timed_out,
            killed: self.killed,
            oom: reactor.oom_kills(false) > self.oom_kills_before,
            at_ms: now_ms(),
            micros: Instant::now().duration_since(self.started_at).as_micros() as u64,
        });
        self.on_group_changed(reactor);
    }

    /// What lives in its group may have changed.
    pub(crate) fn on_group_changed(&mut self, reactor: &mut Reactor) {
        reactor.pending.processes.mark(self.id);
        let left = self.group.as_mut().is_some_and(|group| group.look());
        if left || self.end.is_none() {
            return;
        }
        self.drain_pipes(reactor);
        match &self.group {
            // What left its group's reach may hold its pipes: so that it lives, they are read on.
            None => self.pipes.iter_mut().filter_map(Option::take).for_each(|fd| reactor.drain(fd)),
            Some(_) => self.pipes = [None, None],
        }
        self.leave_group(reactor);
    }

    /// Lets go of its group once that is empty. One that is not yet is tried again.
    pub(super) fn leave_group(&mut self, reactor: &mut Reactor) {
        if self.group.as_ref().is_some_and(|group| group.remove(reactor)) {
            self.group = None;
        } else if self.group.is_some() && self.killing.is_none() {
            self.killing = Some(Killing { kill_at: reactor.now + AGAIN, retry_interval: AGAIN });
        }
    }
}
