//! A connection that reads the log of a process.

use std::time::Instant;

/// A connection that follows a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Follower {
    /// Which process.
    pub(crate) process: u64,
    /// Its position in the log.
    pub(crate) position: u64,
    /// Where it ends; `None`: with the process.
    pub(crate) until: Option<u64>,
    /// When it last read bytes or had read everything.
    pub(crate) last_progress: Instant,
    /// It has read everything.
    pub(crate) caught_up: bool,
}
