//! An interpreter that is being killed.

use std::time::Instant;

/// An interpreter that is being killed, with all that it started.
#[derive(Debug)]
pub(super) struct KillState {
    pub(super) pid: i32,
    pub(super) began: Instant,
    pub(super) look_at: Instant,
}
