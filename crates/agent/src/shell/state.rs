//! The state of a shell's bash, and the close of the shell.
//!
//! ```text
//!                start            executed           bash exits
//!   NotStarted ────────► Opening ──────────► Open ─────────────► Ended ──► (removed)
//!                        │ │   ▲                                   │
//!    cannot be executed  │ └───┘ the start directory is missing    │ a command or a client
//!                        ▼       (uses the parent directory)       │ arrives, and the shell
//!                      Failed                                      │ is a session's
//!                        └────────────► Opening ◄──────────────────┘
//! ```
//! [`CloseProgress`] is independent of it: a shell can be closed in each state, and the processes of
//! a closed shell can outlive its bash.

use super::Shell;
use super::bash::Bash;
use super::close_state::CloseState;
use isolet_wire::response::{Closed, RefusalReason};
use std::time::Instant;

#[derive(Debug)]
pub(crate) enum ShellState {
    /// No bash has been started, or it ended while it restored an earlier state.
    NotStarted,
    /// Bash has been started.
    Opening(Bash),
    /// Bash has been executed.
    Open(Bash),
    /// Bash could not be executed.
    Failed(RefusalReason, String),
    /// Bash has ended, on request or not.
    Ended(EndedBash),
}

#[derive(Debug)]
pub(crate) struct EndedBash {
    pub(super) closed: Closed,
    pub(super) at: Instant,
}

/// `NotRequested ──close()──► Closing ──nothing of the shell is left──► Done`
#[derive(Debug)]
pub(super) enum CloseProgress {
    NotRequested,
    Closing(CloseState),
    /// The shell has ended for good, and only its remaining clients must be informed.
    Done,
}

impl ShellState {
    pub(super) fn bash(&self) -> Option<&Bash> {
        match self {
            Self::Opening(bash) | Self::Open(bash) => Some(bash),
            Self::NotStarted | Self::Failed(..) | Self::Ended(_) => None,
        }
    }

    pub(super) fn bash_mut(&mut self) -> Option<&mut Bash> {
        match self {
            Self::Opening(bash) | Self::Open(bash) => Some(bash),
            Self::NotStarted | Self::Failed(..) | Self::Ended(_) => None,
        }
    }

    pub(super) fn ended(&self) -> Option<&EndedBash> {
        match self {
            Self::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Whether there is no bash, and none was refused.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self, Self::NotStarted | Self::Ended(_))
    }

    /// Whether a bash can be started.
    pub(crate) fn can_start(&self) -> bool {
        self.bash().is_none()
    }

    fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::Opening(_) => true,
            Self::Open(_) => matches!(next, Self::NotStarted | Self::Ended(_)),
            Self::NotStarted | Self::Failed(..) | Self::Ended(_) => {
                matches!(next, Self::Opening(_) | Self::Failed(..))
            }
        }
    }
}

impl Shell {
    /// Changes the state and returns the bash of the state before. Only this function and
    /// [`Shell::mark_executed`] change the state.
    pub(super) fn enter(&mut self, next: ShellState) -> Option<Bash> {
        debug_assert!(self.state.may_become(&next), "{:?} cannot become {next:?}", self.state);
        match std::mem::replace(&mut self.state, next) {
            ShellState::Opening(bash) | ShellState::Open(bash) => Some(bash),
            _ => None,
        }
    }

    /// The bash that is being opened was executed.
    pub(super) fn mark_executed(&mut self) {
        self.state = match std::mem::replace(&mut self.state, ShellState::NotStarted) {
            ShellState::Opening(bash) => ShellState::Open(bash),
            other => other,
        };
    }

    /// Whether the shell is being closed and some of its processes may be left.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.close_progress, CloseProgress::Closing(_))
    }

    /// Whether the shell has ended for good, so that only its remaining clients must be informed.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.close_progress, CloseProgress::Done)
    }
}
