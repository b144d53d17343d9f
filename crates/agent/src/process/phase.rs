//! The phases of a process.
//!
//! ```text
//!    ┌─ retry with a shell
//!    ▼  │
//!   Opening ──executed──► Running ──program exits──► Ended ──cgroup removed──► Over
//!      │                                               ▲
//!      └─not executed──► NotExecuted ──child reaped────┘
//! ```
//! A process that was not executed is refused to its starter and never reported again.

use super::Process;
use isolet_sys::spawn::Child;
use isolet_wire::process::ProcessEnd;

#[derive(Debug)]
pub(super) enum Phase {
    /// The child has not executed the program yet.
    Opening { child: Child },
    /// The program runs, or it was killed before it was executed.
    Running,
    /// The program could not be executed, and its child was not reaped yet.
    NotExecuted,
    /// The program has ended. Its descendants may be alive, or the cgroup still exists.
    Ended(EndedProgram),
    /// Nothing of the process is left.
    Over(EndedProgram),
}

#[derive(Debug, Clone)]
pub(super) struct EndedProgram {
    pub(super) status: ProcessEnd,
    /// Position in the log at which the program's own output ends. Its descendants may write more.
    pub(super) output_end: u64,
}

impl Phase {
    /// The end of the program, once it has ended.
    pub(super) fn ended(&self) -> Option<&EndedProgram> {
        match self {
            Self::Ended(ended) | Self::Over(ended) => Some(ended),
            Self::Opening { .. } | Self::Running | Self::NotExecuted => None,
        }
    }

    fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::Opening { .. } => !matches!(next, Self::Over(_)),
            Self::Running | Self::NotExecuted => matches!(next, Self::Ended(_)),
            Self::Ended(_) => matches!(next, Self::Over(_)),
            Self::Over(_) => false,
        }
    }
}

impl Process {
    /// Changes the phase. No other function does.
    pub(super) fn enter(&mut self, next: Phase) {
        debug_assert!(self.phase.may_become(&next), "{:?} cannot become {next:?}", self.phase);
        if matches!(next, Phase::Over(_)) {
            self.kill_state = None;
        }
        self.phase = next;
    }

    /// Whether the program has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.phase.ended().is_some()
    }
}
