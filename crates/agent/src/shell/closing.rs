//! The state of a shell that is being closed.

use crate::process_tree::Process;
use isolet_wire::activity::CloseCause;
use isolet_wire::response::Closed;
use std::time::Instant;

/// A shell that is told to end.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) cause: CloseCause,
    pub(super) kill_at: Instant,
    pub(super) look_at: Instant,
    pub(super) killed: bool,
    /// What it had started when it was told.
    pub(super) started: Vec<Process>,
    pub(super) closed: Option<Closed>,
}

impl Closing {
    pub(super) fn due(&self) -> Option<Instant> {
        if self.killed && self.closed.is_none() {
            // Only the end of bash itself is left, and that is told.
            return None;
        }
        Some(if self.closed.is_some() { self.look_at.min(self.kill_at) } else { self.kill_at })
    }
}
