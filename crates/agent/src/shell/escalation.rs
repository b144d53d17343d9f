//! The schedule of signals that end a command without ending its shell. They become stronger as
//! time passes.
//!
//! Only time counts in which bash and the interrupted programs could react ([`crate::reaction`]): a
//! bash that has no processor for a second is not killed for that.
//!
//! Background jobs of a bash without job control ignore SIGINT, so the first steps spare them.

use crate::reaction::{ReactionLimit, ReactionTime};
use std::time::{Duration, Instant};

/// One step of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscalationStep {
    /// SIGINT to the shell and its foreground processes.
    Interrupt,
    /// The same, unless an interrupted process still handles the signal.
    InterruptAgain,
    /// SIGTERM to processes that do not ignore SIGINT.
    Terminate,
    /// SIGKILL to the same processes.
    Kill,
    /// SIGKILL to everything that was started since the command began.
    KillAll,
    /// SIGKILL to the shell itself.
    KillShell,
}

const STEPS: [(u64, EscalationStep); 5] = [
    (0, EscalationStep::Interrupt),
    (400, EscalationStep::Terminate),
    (700, EscalationStep::Kill),
    (1000, EscalationStep::KillAll),
    (1500, EscalationStep::KillShell),
];

/// The progress of one command on the schedule.
#[derive(Debug, Clone)]
pub(crate) struct Escalation {
    /// When the first step is due.
    begins: Instant,
    /// Counts from the first step.
    time: ReactionTime,
    next: usize,
    retry: Option<Retry>,
}

/// One more interrupt, or the next look at the current one.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Instant,
    /// Not before the processes have had this time for a reaction, either.
    limit: Option<ReactionLimit>,
}

impl Escalation {
    /// Starts with the first step.
    #[must_use]
    pub(crate) fn new(now: Instant) -> Self {
        Self { begins: now, time: ReactionTime::new(now), next: 0, retry: None }
    }

    /// When the next step or look is due; `None` after the last step.
    #[must_use]
    pub(crate) fn due(&self) -> Option<Instant> {
        let limit = self.next_limit()?;
        let next = if self.next == 0 { self.begins } else { self.time.next_look(limit) };
        let retry = self.retry.filter(|retry| self.could_react(retry));
        Some(retry.map_or(next, |retry| next.min(retry.at)))
    }

    /// Looks whether the processes of the command can react.
    pub(crate) fn look(&mut self, now: Instant, pids: impl FnOnce() -> Vec<i32>) {
        if let Some(limit) = self.next_limit().filter(|_| self.next > 0) {
            self.time.look(now, limit, pids);
        }
    }

    fn next_limit(&self) -> Option<ReactionLimit> {
        let (ms, _) = STEPS.get(self.next)?;
        Some(ReactionTime::limit_since_start(Duration::from_millis(*ms)))
    }

    /// The limit of a wait for a reaction that starts now.
    #[must_use]
    pub(crate) fn limit(&self, time: Duration) -> ReactionLimit {
        self.time.limit(time)
    }

    /// Whether a wait for a reaction is over.
    #[must_use]
    pub(crate) fn has_reached(&self, limit: ReactionLimit) -> bool {
        self.time.has_reached(limit)
    }

    fn could_react(&self, retry: &Retry) -> bool {
        retry.limit.is_none_or(|limit| self.time.has_reached(limit))
    }

    /// Schedules the next look at the current interrupt, if `when` is before the next step.
    pub(crate) fn look_at(&mut self, when: Instant) {
        self.retry = Some(Retry { at: when, limit: None });
    }

    /// Schedules one more interrupt, because the last one may have been lost: when the processes
    /// have had this time for a reaction, if that is before the next step. Each interrupt of a bash
    /// that only lacked a processor is one more chance to meet it at a bad moment.
    pub(crate) fn retry_after(&mut self, now: Instant, time: Duration) {
        self.retry = Some(Retry { at: now + time, limit: Some(self.time.limit(time)) });
    }

    /// Postpones the first step by a millisecond, because nothing has started that it could
    /// interrupt.
    pub(crate) fn postpone(&mut self, now: Instant) {
        if self.next == 0 {
            self.begins = now + Duration::from_millis(1);
        }
    }

    /// The next step that is due; call until `None`.
    pub(crate) fn next_step(&mut self, now: Instant) -> Option<EscalationStep> {
        let limit = self.next_limit()?;
        if now >= self.begins && self.time.has_reached(limit) {
            if self.next == 0 {
                self.time = ReactionTime::new(now);
            }
            self.next += 1;
            return STEPS.get(self.next - 1).map(|(_, step)| *step);
        }
        self.retry.filter(|retry| now >= retry.at && self.could_react(retry))?;
        self.retry = None;
        Some(EscalationStep::InterruptAgain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts(
        escalation: &mut Escalation,
        start: Instant,
        ms: std::ops::Range<u64>,
    ) -> Vec<(u64, EscalationStep)> {
        ms.flat_map(|ms| {
            let now = start + Duration::from_millis(ms);
            escalation.look(now, Vec::new);
            escalation.next_step(now).map(|act| (ms, act))
        })
        .collect()
    }

    #[test]
    fn a_lost_interrupt_is_sent_again_between_the_steps() {
        let start = Instant::now();
        let mut escalation = Escalation::new(start);
        assert_eq!(escalation.next_step(start), Some(EscalationStep::Interrupt));
        escalation.look_at(start + Duration::from_millis(30));
        assert_eq!(acts(&mut escalation, start, 0..200), [(30, EscalationStep::InterruptAgain)]);
        escalation.look_at(start + Duration::from_millis(420));
        let wanted = [
            (400, EscalationStep::Terminate),
            (420, EscalationStep::InterruptAgain),
            (700, EscalationStep::Kill),
        ];
        assert_eq!(acts(&mut escalation, start, 200..701), wanted);
    }

    #[test]
    fn an_interrupt_is_repeated_when_bash_had_time_for_the_last_one() {
        let start = Instant::now();
        let mut escalation = Escalation::new(start);
        assert_eq!(escalation.next_step(start), Some(EscalationStep::Interrupt));
        escalation.retry_after(start, Duration::from_millis(30));
        // The agent itself did not run: nothing has passed for bash that it knows of.
        let later = start + Duration::from_millis(200);
        assert_eq!(escalation.next_step(later), None);
        let due = escalation.due().unwrap();
        assert!(due < later, "{due:?}");
        let next = acts(&mut escalation, later, 0..200);
        assert_eq!(next.len(), 1, "{next:?}");
        assert_eq!(next[0].1, EscalationStep::InterruptAgain);
    }

    #[test]
    fn steps_come_in_order_each_once() {
        let start = Instant::now();
        let mut escalation = Escalation::new(start);
        assert_eq!(acts(&mut escalation, start, 0..3000), STEPS);
        assert_eq!(escalation.due(), None);
    }

    #[test]
    fn an_agent_that_did_not_run_for_long_takes_one_step() {
        let start = Instant::now();
        let mut escalation = Escalation::new(start);
        assert_eq!(acts(&mut escalation, start, 0..390), STEPS[..1]);
        let later = start + Duration::from_secs(60);
        assert_eq!(acts(&mut escalation, later, 0..200), [(0, EscalationStep::Terminate)]);
    }
}
