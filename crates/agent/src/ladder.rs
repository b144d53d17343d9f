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
}

impl Ladder {
    /// Begins at the lowest rung.
    #[must_use]
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, next: 0 }
    }

    /// When the next rung is due; `None` after the last.
    #[must_use]
    pub(crate) fn due(&self) -> Option<Instant> {
        RUNGS.get(self.next).map(|(ms, _)| self.began + Duration::from_millis(*ms))
    }

    /// The rung that is due now; one a call.
    pub(crate) fn climb(&mut self, now: Instant) -> Option<Act> {
        let due = self.due()?;
        (now >= due).then(|| {
            self.next += 1;
            RUNGS[self.next - 1].1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
