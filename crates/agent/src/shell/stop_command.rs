//! Ends a running command without ending its shell, and detects a bash that can no longer report.

use super::bash::Bash;
use super::escalation::{Escalation, EscalationStep};
use super::parts::Resync;
use super::running_command::{
    INTERRUPT_RETRY, InterruptState, ProbeStep, ReaderProbe, RunningCommand, Stage,
};
use super::state::CloseProgress;
use super::{START_MAX, Shell};
use crate::process_tree::{self, ProcessHandle};
use crate::reaction::ReactionWait;
use crate::reactor::Reactor;
use crate::signals::{CONT, INT, KILL, TERM};
use isolet_sys::signal;
use isolet_wire::activity::CloseCause;
use isolet_wire::response::RefusalReason;
use std::time::{Duration, Instant};

/// Maximum pause between two checks whether bash is back at its reader.
const PROBE_MAX: Duration = Duration::from_secs(60);
/// Time for bash to get from its reader to its report, and to end after it closed the status channel.
const REPORT_MAX: Duration = Duration::from_millis(250);
/// How long an interrupt waits for a busy bash to read the line that is to be interrupted.
const BEGIN_MAX: Duration = Duration::from_millis(400);
/// Number of children of bash that are looked at, to see whether they can react.
const CHILDREN_MAX: usize = 8;
/// Time in which bash must have been able to run one of the agent's own steps, behind its deadline.
const OWN_STEP_LEAST: Duration = Duration::from_millis(500);
/// Number of report requests after an interrupt before the shell is given up.
const SETTLE_MAX: u32 = 100;

impl Shell {
    /// Starts to interrupt the running command.
    pub(super) fn interrupt(&mut self, reactor: &mut Reactor, timed_out: bool) {
        let Some(running) = self.running.as_mut() else { return };
        if timed_out {
            running.result.timed_out = true;
        } else {
            running.result.cancelled = true;
        }
        // The command's text has ended, and only the agent's cleanup step is running.
        if running.step.stage == Stage::After || running.output.unread.is_some() {
            return;
        }
        if running.interrupts.escalation.is_none() {
            running.interrupts.escalation = Some(Escalation::new(reactor.now));
            self.escalate(reactor);
        }
    }

    fn escalate(&mut self, reactor: &mut Reactor) {
        // An interrupt before bash has read the line would have no effect on it.
        if let Some(running) = self.running.as_mut()
            && let Some(bash) = self.state.bash()
            && let Some(escalation) = running.interrupts.escalation.as_mut()
            && reactor.now.duration_since(running.step.written_at) < BEGIN_MAX
            && bash.has_not_begun_reading(running.step.bytes)
        {
            escalation.postpone(reactor.now);
        }
        self.look_at_command(reactor);
        while let Some(act) = self
            .running
            .as_mut()
            .and_then(|r| r.interrupts.escalation.as_mut())
            .and_then(|l| l.next_step(reactor.now))
        {
            self.apply_escalation(reactor, act);
        }
    }

    /// Looks whether bash and the programs that the interrupt is meant for can react.
    fn look_at_command(&mut self, reactor: &Reactor) {
        let Some(mut escalation) =
            self.running.as_mut().and_then(|running| running.interrupts.escalation.take())
        else {
            return;
        };
        escalation.look(reactor.now, || self.bash_and_children());
        if let Some(running) = self.running.as_mut() {
            running.interrupts.escalation = Some(escalation);
        }
    }

    /// Process ids of bash, of the processes that received the last interrupt, and of the children
    /// of bash that the command started and that do not ignore SIGINT.
    pub(super) fn bash_and_children(&self) -> Vec<i32> {
        let mut pids = vec![self.pid()];
        if let Some(running) = &self.running {
            pids.extend(running.interrupts.processes.iter().map(|process| process.pid));
        }
        let since = self.running.as_ref().map(|running| running.started_ticks);
        if let Some(since) = since.or(self.steps.sweep_since) {
            let children = process_tree::children_of(self.pid());
            let new = children.iter().filter(|child| self.is_since(child, since));
            let heeds = new.filter(|child| !child.signals().ignore_interrupt());
            pids.extend(heeds.map(|child| child.pid).take(CHILDREN_MAX));
        }
        pids
    }

    fn apply_escalation(&mut self, reactor: &mut Reactor, act: EscalationStep) {
        let pid = self.pid();
        let Some(running) = self.running.as_mut() else { return };
        running.note_interrupt();
        match act {
            EscalationStep::Interrupt => self.advance_interrupt(reactor),
            EscalationStep::InterruptAgain => {
                // An interrupted process may be cleaning up and is not disturbed.
                let still = running.interrupts.processes.iter().any(ProcessHandle::is_alive);
                let back = self.state.bash().is_some_and(Bash::has_read_everything);
                if running.interrupts.state != InterruptState::Idle || !still && !back {
                    self.advance_interrupt(reactor);
                    return;
                }
                if let Some(escalation) = running.interrupts.escalation.as_mut() {
                    escalation.retry_after(reactor.now, INTERRUPT_RETRY);
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
        self.processes_to_signal(reactor, all).iter().for_each(|process| process.send(number));
        // The next program of the command has started by now.
        let pid = self.pid();
        if !self.state.bash().is_some_and(Bash::has_read_everything) {
            let _ = signal::send(pid, INT);
        }
        let _ = signal::send(pid, CONT);
        if let Some(running) = self.running.as_mut() {
            running.interrupts.state = InterruptState::Idle;
            if let Some(escalation) = running.interrupts.escalation.as_mut() {
                escalation.retry_after(reactor.now, INTERRUPT_RETRY);
            }
        }
        self.request_report_again(reactor);
    }

    /// Processes that the running command started: all of them, or those that do not ignore SIGINT.
    fn processes_to_signal(&self, reactor: &Reactor, all: bool) -> Vec<ProcessHandle> {
        let Some(running) = &self.running else { return Vec::new() };
        if !all {
            return self.interruptible(reactor, running.started_ticks).0;
        }
        let mut found =
            process_tree::descendants(self.pid(), |pid| reactor.children.contains_key(&pid));
        found.retain(|process| self.is_since(process, running.started_ticks));
        found
    }

    /// Sends a signal to the foreground processes of a command. Returns `false` if there is no such
    /// command.
    pub(crate) fn signal(
        &mut self,
        reactor: &mut Reactor,
        owner: &str,
        id: &str,
        number: i32,
    ) -> bool {
        let pid = self.pid();
        let own = |r: &RunningCommand| r.key.owner == owner && r.key.id == id;
        if !self.running.as_ref().is_some_and(|running| own(running)) {
            return false;
        }
        let mut targets = self.processes_to_signal(reactor, false);
        if targets.is_empty() {
            targets = self.processes_to_signal(reactor, true);
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

    /// Schedules a check of the status channel, which may be lost.
    pub(super) fn schedule_status_check(&mut self, reactor: &Reactor) {
        let wait = ReactionWait::new(reactor.now, REPORT_MAX, vec![self.pid()]);
        match self.running.as_mut() {
            Some(running) => {
                running.step.probe = ReaderProbe {
                    due: wait.next_look(),
                    pause: Duration::ZERO,
                    step: ProbeStep::GiveUp,
                    wait: Some(wait),
                };
            }
            None => self.steps.resync = Some(Resync { wait, tries: SETTLE_MAX }),
        }
    }

    /// The earliest moment at which [`Shell::on_deadline`] has something to do.
    pub(super) fn next_deadline(&self, reactor: &Reactor) -> Option<Instant> {
        let mut due: Option<Instant> = self.flow.stalled_until;
        let mut sooner = |when: Option<Instant>| {
            due = match (due, when) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        };
        let starting = self.state.bash().filter(|bash| !bash.ready && self.kill_cause.is_none());
        if let Some(bash) = starting {
            sooner(Some(bash.opened + START_MAX));
        }
        if let Some(running) = &self.running {
            let timeout = running.run.timeout_ms;
            if timeout > 0 && !running.result.timed_out {
                sooner(running.started_at.checked_add(Duration::from_millis(timeout)));
            }
            sooner(running.interrupts.escalation.as_ref().and_then(Escalation::due));
            if running.interrupts.escalation.is_none() {
                sooner(running.step.own_deadline);
                sooner(running.step.own_wait.as_ref().map(ReactionWait::next_look));
            }
            sooner((running.output.unread.is_none()).then_some(running.step.probe.due));
        }
        sooner(self.steps.resync.as_ref().map(|resync| resync.wait.next_look()));
        if let CloseProgress::Closing(closing) = &self.close_progress {
            sooner(closing.due());
        }
        sooner(self.linger_deadline());
        sooner(self.log_expiry());
        sooner(self.save_due(reactor));
        due
    }

    /// When the log of an ended private shell is removed.
    fn log_expiry(&self) -> Option<Instant> {
        let unseen = !self.is_session() && self.clients.is_empty() && !self.is_closing();
        self.state.ended().filter(|_| unseen).map(|ended| ended.at + super::DEAD_KEPT)
    }

    /// When the shell is closed because no client is attached.
    fn linger_deadline(&self) -> Option<Instant> {
        let linger = Duration::from_millis(self.open.linger_ms?);
        let alone = self.clients.is_empty() && self.state.bash().is_some() && !self.is_closing();
        alone.then(|| self.last_detached.at.checked_add(linger)).flatten()
    }

    /// Handles everything that is due.
    pub(super) fn on_deadline(&mut self, reactor: &mut Reactor) {
        let now = reactor.now;
        if self.state.bash().is_some_and(|bash| !bash.ready && now >= bash.opened + START_MAX) {
            self.kill_for(reactor, CloseCause::DidNotStart);
        }
        if self.linger_deadline().is_some_and(|when| now >= when) {
            self.close(reactor, CloseCause::NobodyAttached);
        }
        self.check_timeouts(reactor);
        self.check_reader(reactor);
        self.save_elapsed(reactor);
        self.check_resync(reactor);
        self.closing_elapsed(reactor);
    }

    /// Requests a report again, once bash has had the time for the last one.
    fn check_resync(&mut self, reactor: &mut Reactor) {
        let Some(mut resync) = self.steps.resync.take() else { return };
        let over = resync.wait.is_over(reactor.now, || self.bash_and_children());
        let tries = resync.tries;
        self.steps.resync = Some(resync);
        match over {
            false => {}
            true if tries >= SETTLE_MAX => self.kill_for(reactor, CloseCause::StatusChannelClosed),
            true => self.resync(reactor),
        }
    }

    /// Handles the timeouts of the running command.
    fn check_timeouts(&mut self, reactor: &mut Reactor) {
        let pid = self.pid();
        let Some(running) = self.running.as_mut() else { return };
        let limit = Duration::from_millis(running.run.timeout_ms);
        let took = reactor.now.duration_since(running.started_at);
        let guarded = running.step.own_deadline.is_some_and(|guard| reactor.now >= guard);
        if guarded && running.interrupts.escalation.is_none() {
            running.step.own_deadline = None;
            running.step.own_wait = Some(ReactionWait::new(reactor.now, OWN_STEP_LEAST, vec![pid]));
        }
        if let Some(wait) = running.step.own_wait.as_mut()
            && wait.is_over(reactor.now, || vec![pid])
        {
            running.step.own_wait = None;
            running.interrupts.escalation.get_or_insert_with(|| Escalation::new(reactor.now));
        }
        if !limit.is_zero() && took >= limit && !running.result.timed_out {
            self.interrupt(reactor, true);
        }
        self.escalate(reactor);
    }

    /// Checks whether bash is back at its reader without having reported.
    fn check_reader(&mut self, reactor: &mut Reactor) {
        let id = self.id;
        let Some(running) = self.running.as_mut() else { return };
        let Some(bash) = self.state.bash_mut() else { return };
        let probe = &mut running.step.probe;
        if reactor.now < probe.due || running.output.unread.is_some() {
            return;
        }
        let pid = bash.pid;
        if let Some(wait) = probe.wait.as_mut()
            && !wait.is_over(reactor.now, || vec![pid])
        {
            probe.due = wait.next_look();
            return;
        }
        let pause = probe.pause;
        let step = probe.step;
        let check_at = |due| ReaderProbe { due, pause, step: ProbeStep::RequestReport, wait: None };
        match step {
            ProbeStep::WriteEmptyLine => {
                Self::write_empty_line(bash, reactor, id);
                running.step.probe = check_at(reactor.now + REPORT_MAX);
            }
            ProbeStep::RequestReport if !bash.has_read_everything() => {
                let pause = (pause * 2).min(PROBE_MAX);
                running.step.probe = ReaderProbe { pause, ..check_at(reactor.now + pause) };
            }
            // Bash has read everything. A signal from another process may have cost the line that
            // requests the report, or a function of the tenant may hide the builtin, so the report
            // is requested with both prefixes.
            ProbeStep::RequestReport | ProbeStep::RequestByOtherPrefix => {
                let next = if step == ProbeStep::RequestReport {
                    ProbeStep::RequestByOtherPrefix
                } else {
                    ProbeStep::GiveUp
                };
                let wait = ReactionWait::new(reactor.now, REPORT_MAX, vec![pid]);
                let due = wait.next_look();
                running.step.probe = ReaderProbe { due, pause, step: next, wait: Some(wait) };
                running.interrupts.line_may_be_lost = true;
                bash.switch_prefix();
                self.request_report_again(reactor);
            }
            _ if pause > Duration::ZERO && !bash.has_read_everything() => {
                running.step.probe = check_at(reactor.now + REPORT_MAX);
            }
            _ => self.give_up_report(reactor),
        }
    }

    /// Ends a command whose report will never come.
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

    /// Kills the shell for a reason of the agent.
    pub(super) fn kill_for(&mut self, reactor: &mut Reactor, cause: CloseCause) {
        self.kill_cause = Some(cause);
        self.steps.awaited = None;
        self.steps.resync = None;
        reactor.pending.shells.mark(self.id);
        let Some(bash) = self.state.bash() else { return };
        if self.is_closing() {
            return;
        }
        for process in
            process_tree::descendants(bash.pid, |pid| reactor.children.contains_key(&pid))
        {
            process.send(KILL);
        }
        let _ = signal::send(bash.pid, KILL);
    }
}
