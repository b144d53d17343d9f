//! A connection that reads the log of a process.

use std::time::{Duration, Instant};

/// A connection that follows the log of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Follower {
    /// The number of the process.
    pub(crate) process: u64,
    /// The follower's position in the log.
    pub(crate) position: u64,
    /// The position at which it ends; `None` means with the process.
    pub(crate) until: Option<u64>,
    /// When the follower last read bytes or had read everything.
    pub(crate) last_progress: Instant,
    /// How long the process waits for it while it reads nothing.
    pub(crate) patience: Duration,
    /// The follower has read everything.
    pub(crate) caught_up: bool,
}
