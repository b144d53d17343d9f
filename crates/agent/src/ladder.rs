//! Ending a command without ending its shell: a schedule of ever harder means.
//!
//! Background jobs of a bash without job control ignore SIGINT; that is how the first rungs spare
//! them.

use std::time::{Duration, Instant};

/// One rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// SIGINT to the shell's group, and to what runs in the foreground outside it.
    Interrupt,
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
    again: u32,
}

/// Between interrupts that may have been lost, and how many of them.
const AGAIN: (Duration, u32) = (Duration::from_millis(30), 3);

impl Ladder {
    /// Begins at the lowest rung.
    #[must_use]
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, next: 0, again: 0 }
    }

    /// When the next rung is due; `None` after the last.
    #[must_use]
    pub(crate) fn due(&self) -> Option<Instant> {
        let next = RUNGS.get(self.next).map(|(ms, _)| self.began + Duration::from_millis(*ms));
        let again = self.began + AGAIN.0 * (AGAIN.1 + 1 - self.again);
        if self.again > 0 { next.map(|next| next.min(again)) } else { next }
    }

    /// What is interrupted has begun only now: a process that is between its fork and its
    /// execution loses an interrupt, so a few more are sent.
    pub(crate) fn insist(&mut self) {
        if self.next == 1 && self.again == 0 {
            self.again = AGAIN.1;
        }
    }

    /// Nothing to interrupt has begun yet: the first rung waits a moment longer.
    pub(crate) fn wait(&mut self, now: Instant) {
        if self.next == 0 {
            self.began = now + Duration::from_millis(1);
        }
    }

    /// The rung that is due now; one a call.
    pub(crate) fn climb(&mut self, now: Instant) -> Option<Act> {
        let due = self.due()?;
        (now >= due).then(|| {
            if self.again > 0 {
                self.again -= 1;
                return Act::Interrupt;
            }
            self.next += 1;
            RUNGS[self.next - 1].1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_young_command_is_interrupted_four_times() {
        let start = Instant::now();
        let mut ladder = Ladder::new(start);
        assert_eq!(ladder.climb(start), Some(Act::Interrupt));
        ladder.insist();
        let mut at = Vec::new();
        for ms in 0..500 {
            let now = start + Duration::from_millis(ms);
            at.extend(ladder.climb(now).map(|act| (ms, act)));
        }
        let wanted = [30, 60, 90].map(|ms| (ms, Act::Interrupt));
        assert_eq!(at[..3], wanted);
        assert_eq!(at[3..], [(400, Act::Terminate)]);
    }

    #[test]
    fn rungs_come_in_order_each_once() {
        let start = Instant::now();
        let mut ladder = Ladder::new(start);
        let mut acts = Vec::new();
        for ms in 0..3000 {
            acts.extend(ladder.climb(start + Duration::from_millis(ms)));
        }
        assert_eq!(acts, RUNGS.map(|(_, act)| act));
        assert_eq!(ladder.due(), None);
    }
}
