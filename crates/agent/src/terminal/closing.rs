//! The state of a terminal that is being closed.

use crate::process_tree::Process;
use std::time::Instant;

/// A terminal that is told to end.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) kill_at: Instant,
    pub(super) killed: bool,
    /// What it had started when it was told.
    pub(super) started: Vec<Process>,
}
