//! The state of a process that is being killed.

use std::time::{Duration, Instant};

/// A process that is being killed.
#[derive(Debug)]
pub(super) struct KillState {
    /// When all processes are killed, or killed again.
    pub(super) kill_at: Instant,
    pub(super) retry_interval: Duration,
}
