//! Ending a command without ending its shell: a schedule of ever harder means.
//!
//! Background jobs of a bash without job control ignore SIGINT; that is how the first rungs spare
//! them.

use std::time::{Duration, Instant};

/// One rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// SIGINT to the shell, and to what runs in the foreground.
    Interrupt,
    /// The same, unless something that was interrupted is still at it.
    InterruptAgain,
    /// SIGTERM to what does not ignore SIGINT.
    Terminate,
    /// SIGKILL to the same.
    Kill,
    /// SIGKILL to all that was started since the command began.
    KillAll,
    /// SIGKILL to the shell itself.
    KillShell,
}

const RUNGS: [(u64, Act); 5] = [
    (0, Act::Interrupt),
    (400, Act::Terminate),
    (700, Act::Kill),
    (1000, Act::KillAll),
    (1500, Act::KillShell),
];

/// Where on the ladder one command is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ladder {
    began: Instant,
    next: usize,
    again: Option<Instant>,
}

impl Ladder {
    /// Begins at the lowest rung.
    #[must_use]
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, next: 0, again: None }
    }

    /// When the next rung is due; `None` after the last.
    #[must_use]
    pub(crate) fn due(&self) -> Option<Instant> {
        let (ms, _) = RUNGS.get(self.next)?;
        let next = self.began + Duration::from_millis(*ms);
        Some(self.again.map_or(next, |again| next.min(again)))
    }

    /// The last interrupt may have been lost: between this rung and the next there is to be
    /// another one, at `when`.
    pub(crate) fn again(&mut self, when: Instant) {
        self.again = Some(when);
    }

    /// Nothing to interrupt has begun yet: the first rung waits a moment longer.
    pub(crate) fn wait(&mut self, now: Instant) {
        if self.next == 0 {
            self.began = now + Duration::from_millis(1);
        }
    }

    /// What is due now; one a call.
    pub(crate) fn climb(&mut self, now: Instant) -> Option<Act> {
        let due = self.due()?;
        (now >= due).then(|| {
            if self.again.take_if(|again| *again == due).is_some() {
                return Act::InterruptAgain;
            }
            self.next += 1;
            RUNGS[self.next - 1].1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts(ladder: &mut Ladder, start: Instant, ms: std::ops::Range<u64>) -> Vec<(u64, Act)> {
        ms.flat_map(|ms| {
            let now = start + Duration::from_millis(ms);
            ladder.climb(now).map(|act| (ms, act))
        })
        .collect()
    }

    #[test]
    fn a_lost_interrupt_is_sent_again_between_the_rungs() {
        let start = Instant::now();
        let mut ladder = Ladder::new(start);
        assert_eq!(ladder.climb(start), Some(Act::Interrupt));
        ladder.again(start + Duration::from_millis(30));
        assert_eq!(acts(&mut ladder, start, 0..200), [(30, Act::InterruptAgain)]);
        ladder.again(start + Duration::from_millis(420));
        let wanted = [(400, Act::Terminate), (420, Act::InterruptAgain), (700, Act::Kill)];
        assert_eq!(acts(&mut ladder, start, 200..701), wanted);
    }

    #[test]
    fn rungs_come_in_order_each_once() {
        let start = Instant::now();
        let mut ladder = Ladder::new(start);
        assert_eq!(acts(&mut ladder, start, 0..3000), RUNGS);
        assert_eq!(ladder.due(), None);
    }
}
