//! The state of a terminal that is being closed.

use crate::process_tree::ProcessHandle;
use std::time::Instant;

/// A terminal that is being closed.
#[derive(Debug)]
pub(super) struct CloseState {
    pub(super) kill_at: Instant,
    pub(super) killed: bool,
    /// The processes that it had started when the close began.
    pub(super) started: Vec<ProcessHandle>,
}
