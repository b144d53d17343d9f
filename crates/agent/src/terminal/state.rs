//! The state of a terminal's program.
//!
//! ```text
//!   Opening ──executed──► Live ──program exits──► Ended ──last client has read it──► (removed)
//!      │
//!      └─not executed, or not within 30 s──► Failed ──at the end of the round──► (removed)
//! ```
//! [`super::close_state::CloseProgress`] is independent of it: a client can close a terminal whose
//! program is not executed yet, and processes of a closed terminal can outlive the program.

use super::Terminal;
use isolet_sys::spawn::Child;
use isolet_wire::response::{Closed, RefusalReason};
use std::os::fd::OwnedFd;
use std::time::Instant;

#[derive(Debug)]
pub(crate) enum TerminalState {
    /// The program has not been executed yet.
    Opening(StartProgress),
    /// The program is running.
    Live,
    /// The program could not be executed.
    Failed(RefusalReason, String),
    /// The program has ended.
    Ended(EndedProgram),
}

/// The start of a terminal's program, until it is executed.
#[derive(Debug)]
pub(crate) struct StartProgress {
    pub(super) child: Child,
    /// The socket on which the child passes the PTY's master.
    pub(super) handover: OwnedFd,
}

#[derive(Debug)]
pub(crate) struct EndedProgram {
    pub(super) closed: Closed,
    pub(super) at: Instant,
}

impl TerminalState {
    /// Whether the program runs or may still be executed.
    pub(super) fn has_program(&self) -> bool {
        matches!(self, Self::Opening(_) | Self::Live)
    }

    fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::Opening(_) => !matches!(next, Self::Opening(_)),
            Self::Live => matches!(next, Self::Ended(_)),
            Self::Failed(..) | Self::Ended(_) => false,
        }
    }
}

impl Terminal {
    /// Changes the state of the program. No other function does.
    pub(super) fn enter(&mut self, next: TerminalState) {
        debug_assert!(self.state.may_become(&next), "{:?} cannot become {next:?}", self.state);
        self.state = next;
    }

    /// When the program ended.
    pub(crate) fn ended_at(&self) -> Option<Instant> {
        match &self.state {
            TerminalState::Ended(ended) => Some(ended.at),
            _ => None,
        }
    }
}
