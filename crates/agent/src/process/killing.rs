//! The state of a process that is being killed.

use std::time::{Duration, Instant};

/// A process that is to end.
#[derive(Debug)]
pub(super) struct Killing {
    /// When all of it is killed, or killed again.
    pub(super) at: Instant,
    pub(super) again: Duration,
}
