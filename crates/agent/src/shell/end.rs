//! Ends a running command while its shell stays, and notices when bash can no longer report.

use super::bash::Bash;
use super::escalation::{Escalation, EscalationStep};
use super::running::{INTERRUPT_RETRY, InterruptState, ProbeStep, ReaderProbe, Running, Stage};
use super::{Resync, START_MAX, Shell, State};
use crate::process_tree::{self, Process};
use crate::reactor::Reactor;
use crate::signals::{CONT, INT, KILL, TERM};
use isolet_sys::signal;
use isolet_wire::activity::CloseCause;
use isolet_wire::response::RefusalReason;
use std::time::{Duration, Instant};

/// The longest pause between two looks whether bash is back at its reader.
const PROBE_MAX: Duration = Duration::from_secs(60);
/// How long bash may take from its reader to its report.
const REPORT_MAX: Duration = Duration::from_millis(250);
/// How long an interrupt waits for a busy bash to read the line that it is to interrupt.
const BEGIN_MAX: Duration = Duration::from_millis(400);
/// Questions after an interrupt before the shell is given up.
const SETTLE_MAX: u32 = 100;

impl Shell {
    /// Begins to interrupt the running command.
    pub(super) fn interrupt(&mut self, reactor: &mut Reactor, timed_out: bool) {
        let Some(running) = self.running.as_mut() else { return };
        if timed_out {
            running.timed_out = true;
        } else {
            running.cancelled = true;
        }
        // Its text has ended: what is left is the agent's own.
        if running.stage == Stage::After || running.unread.is_some() {
            return;
        }
        if running.escalation.is_none() {
            running.escalation = Some(Escalation::new(reactor.now));
            self.escalate(reactor);
        }
    }

    fn escalate(&mut self, reactor: &mut Reactor) {
        // An interrupt that comes before bash has read the line would be lost on it.
        if let (Some(running), Some(bash)) = (self.running.as_mut(), self.bash.as_ref())
            && let Some(escalation) = running.escalation.as_mut()
            && reactor.now.duration_since(running.step_written_at) < BEGIN_MAX
            && bash.has_not_begun_reading(running.step_bytes)
        {
            escalation.postpone(reactor.now);
        }
        while let Some(act) = self
            .running
            .as_mut()
            .and_then(|r| r.escalation.as_mut())
            .and_then(|l| l.next_step(reactor.now))
        {
            self.apply_escalation(reactor, act);
        }
    }

    fn apply_escalation(&mut self, reactor: &mut Reactor, act: EscalationStep) {
        let pid = self.pid();
        let Some(running) = self.running.as_mut() else { return };
        running.note_interrupt();
        match act {
            EscalationStep::Interrupt => self.advance_interrupt(reactor),
            EscalationStep::InterruptAgain => {
                // What was interrupted may be putting its things in order; that is not disturbed.
                let still = running.interrupted_processes.iter().any(Process::is_alive);
                let back = self.bash.as_ref().is_some_and(Bash::has_read_everything);
                if running.interrupt != InterruptState::Idle || !still && !back {
                    self.advance_interrupt(reactor);
                    return;
                }
                if let Some(escalation) = running.escalation.as_mut() {
                    escalation.retry_at(reactor.now + INTERRUPT_RETRY);
                }
                if back {
                    self.request_report_again(reactor);
                }
            }
            EscalationStep::Terminate => self.send_each(reactor, TERM, false),
            EscalationStep::Kill => self.send_each(reactor, KILL, false),
            EscalationStep::KillAll => self.send_each(reactor, KILL, true),
            EscalationStep::KillShell => {
                let _ = signal::send(pid, KILL);
            }
        }
    }

    fn send_each(&mut self, reactor: &Reactor, number: i32, all: bool) {
        self.started_processes(reactor, all).iter().for_each(|process| process.send(number));
        // What stood after the one that was just ended has begun by now.
        let pid = self.pid();
        if !self.bash.as_ref().is_some_and(Bash::has_read_everything) {
            let _ = signal::send(pid, INT);
        }
        let _ = signal::send(pid, CONT);
        if let Some(running) = self.running.as_mut() {
            running.interrupt = InterruptState::Idle;
            if let Some(escalation) = running.escalation.as_mut() {
                escalation.retry_at(reactor.now + INTERRUPT_RETRY);
            }
        }
        self.request_report_again(reactor);
    }

    /// What the running command started: what does not ignore SIGINT, or `all`.
    fn started_processes(&self, reactor: &Reactor, all: bool) -> Vec<Process> {
        let Some(running) = &self.running else { return Vec::new() };
        if !all {
            return self.interruptible(reactor, running.started_ticks).0;
        }
        let mut found =
            process_tree::descendants(self.pid(), |pid| reactor.children.contains_key(&pid));
        found.retain(|process| self.is_since(process, running.started_ticks));
        found
    }

    /// Sends a signal to what the command runs in the foreground. `false`: no such command.
    pub(crate) fn signal(
        &mut self,
        reactor: &mut Reactor,
        owner: &str,
        id: &str,
        number: i32,
    ) -> bool {
        let pid = self.pid();
        let own = |r: &Running| r.key.owner == owner && r.key.id == id;
        if !self.running.as_ref().is_some_and(|running| own(running)) {
            return false;
        }
        let mut targets = self.started_processes(reactor, false);
        if targets.is_empty() {
            targets = self.started_processes(reactor, true);
        }
        if !targets.is_empty() {
            targets.iter().for_each(|process| process.send(number));
        } else if number == INT {
            if let Some(running) = self.running.as_mut() {
                running.note_interrupt();
            }
            let _ = signal::send(pid, INT);
            self.request_report_again(reactor);
        }
        true
    }

    /// The status channel may be lost: look at `when`.
    pub(super) fn schedule_status_check(&mut self, when: Instant) {
        match self.running.as_mut() {
            Some(running) => {
                running.probe =
                    ReaderProbe { due: when, pause: Duration::ZERO, step: ProbeStep::GiveUp };
            }
            None => self.resyncing = Some(Resync { due: when, tries: SETTLE_MAX }),
        }
    }

    /// The earliest moment at which [`Shell::elapsed`] has something to do.
    pub(super) fn next_deadline(&self, reactor: &Reactor) -> Option<Instant> {
        let mut due: Option<Instant> = self.stalled_until;
        let mut sooner = |when: Option<Instant>| {
            due = match (due, when) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        };
        let starting = self.bash.as_ref().filter(|bash| !bash.ready && self.close_cause.is_none());
        if let Some(bash) = starting {
            sooner(Some(bash.opened + START_MAX));
        }
        if let Some(running) = &self.running {
            let timeout = running.run.timeout_ms;
            if timeout > 0 && !running.timed_out {
                sooner(running.started_at.checked_add(Duration::from_millis(timeout)));
            }
            sooner(running.escalation.as_ref().and_then(Escalation::due));
            sooner(running.own_step_deadline.filter(|_| running.escalation.is_none()));
            sooner((running.unread.is_none()).then_some(running.probe.due));
        }
        sooner(self.resyncing.map(|resync| resync.due));
        sooner(self.closing.as_ref().and_then(super::closing::Closing::due));
        sooner(self.linger_deadline());
        sooner(self.log_expiry());
        sooner(self.save_due(reactor));
        due
    }

    /// When the log of an ended private shell is let go of.
    fn log_expiry(&self) -> Option<Instant> {
        let unseen = !self.is_session() && self.clients.is_empty() && self.closing.is_none();
        self.ended.as_ref().filter(|_| unseen).map(|(_, at)| *at + super::DEAD_KEPT)
    }

    /// When it is closed because nobody is attached.
    fn linger_deadline(&self) -> Option<Instant> {
        let linger = Duration::from_millis(self.open.linger_ms?);
        let alone = self.clients.is_empty() && self.bash.is_some() && self.closing.is_none();
        alone.then(|| self.last_detached.at.checked_add(linger)).flatten()
    }

    /// Does what is due.
    pub(super) fn on_deadline(&mut self, reactor: &mut Reactor) {
        let now = reactor.now;
        if self.bash.as_ref().is_some_and(|bash| !bash.ready && now >= bash.opened + START_MAX) {
            self.kill_for(reactor, CloseCause::DidNotStart);
        }
        if self.linger_deadline().is_some_and(|when| now >= when) {
            self.close(reactor, CloseCause::NobodyAttached);
        }
        self.check_timeouts(reactor);
        self.check_reader(reactor);
        self.save_elapsed(reactor);
        if let Some(Resync { due: when, tries }) = self.resyncing
            && now >= when
        {
            if tries >= SETTLE_MAX {
                self.kill_for(reactor, CloseCause::StatusChannelClosed);
            } else {
                self.resync(reactor);
            }
        }
        self.closing_elapsed(reactor);
    }

    /// Timeouts of the running command.
    fn check_timeouts(&mut self, reactor: &mut Reactor) {
        let Some(running) = self.running.as_mut() else { return };
        let limit = Duration::from_millis(running.run.timeout_ms);
        let took = reactor.now.duration_since(running.started_at);
        let guarded = running.own_step_deadline.is_some_and(|guard| reactor.now >= guard);
        if guarded && running.escalation.is_none() {
            running.own_step_deadline = None;
            running.escalation = Some(Escalation::new(reactor.now));
        }
        if !limit.is_zero() && took >= limit && !running.timed_out {
            self.interrupt(reactor, true);
        }
        self.escalate(reactor);
    }

    /// Looks whether bash is back at its reader without having reported.
    fn check_reader(&mut self, reactor: &mut Reactor) {
        let id = self.id;
        let (Some(running), Some(bash)) = (self.running.as_mut(), self.bash.as_mut()) else {
            return;
        };
        let ReaderProbe { due: when, pause, step } = running.probe;
        if reactor.now < when || running.unread.is_some() {
            return;
        }
        match step {
            ProbeStep::WriteEmptyLine => {
                Self::write_empty_line(bash, reactor, id);
                running.probe = ReaderProbe {
                    due: reactor.now + REPORT_MAX,
                    pause,
                    step: ProbeStep::RequestReport,
                };
            }
            ProbeStep::RequestReport if !bash.has_read_everything() => {
                let pause = (pause * 2).min(PROBE_MAX);
                running.probe =
                    ReaderProbe { due: reactor.now + pause, pause, step: ProbeStep::RequestReport };
            }
            // It has read everything. An interrupt from elsewhere can have cost the line that
            // asks, and a function of a tenant's can stand in its way: it is asked both ways.
            ProbeStep::RequestReport | ProbeStep::RequestByOtherPrefix => {
                let next = if step == ProbeStep::RequestReport {
                    ProbeStep::RequestByOtherPrefix
                } else {
                    ProbeStep::GiveUp
                };
                running.probe = ReaderProbe { due: reactor.now + REPORT_MAX, pause, step: next };
                running.line_may_be_lost = true;
                bash.switch_prefix();
                self.request_report_again(reactor);
            }
            _ if pause > Duration::ZERO && !bash.has_read_everything() => {
                running.probe = ReaderProbe {
                    due: reactor.now + REPORT_MAX,
                    pause,
                    step: ProbeStep::RequestReport,
                };
            }
            _ => self.give_up_report(reactor),
        }
    }

    /// Nobody will ever report the end of the running command.
    fn give_up_report(&mut self, reactor: &mut Reactor) {
        if let Some(running) = self.running.take() {
            let message = "the shell's status channel was closed by the command".to_owned();
            self.log.push_event(crate::connection::shell_log::LogEvent::Refused(
                running.key.clone(),
                RefusalReason::NoShell,
                message,
            ));
        }
        self.kill_for(reactor, CloseCause::StatusChannelClosed);
    }

    /// Ends the shell at once, for a reason of the agent's.
    pub(super) fn kill_for(&mut self, reactor: &mut Reactor, cause: CloseCause) {
        self.close_cause = Some(cause);
        self.awaited_step = None;
        self.resyncing = None;
        reactor.pending.shells.mark(self.id);
        if self.state == State::Dead || self.closing.is_some() {
            return;
        }
        for process in
            process_tree::descendants(self.pid(), |pid| reactor.children.contains_key(&pid))
        {
            process.send(KILL);
        }
        let _ = signal::send(self.pid(), KILL);
    }
}
