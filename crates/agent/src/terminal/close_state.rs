//! The close of a terminal on request.

use crate::process_tree::ProcessHandle;
use std::time::Instant;

/// `NotRequested ──close()──► Closing ──nothing of the terminal is left──► Done`
#[derive(Debug)]
pub(super) enum CloseProgress {
    NotRequested,
    Closing(CloseState),
    /// The terminal was closed, and nothing of it is left.
    Done,
}

/// A terminal that is being closed.
#[derive(Debug)]
pub(super) struct CloseState {
    pub(super) kill_at: Instant,
    pub(super) killed: bool,
    /// The processes that it had started when the close began.
    pub(super) started: Vec<ProcessHandle>,
}
