//! The state of a shell that is being closed.

use crate::process_tree::ProcessHandle;
use isolet_wire::activity::CloseCause;
use isolet_wire::response::Closed;
use std::time::Instant;

/// A shell that is being closed.
#[derive(Debug)]
pub(super) struct CloseState {
    pub(super) cause: CloseCause,
    pub(super) kill_at: Instant,
    pub(super) look_at: Instant,
    pub(super) killed: bool,
    /// The processes that it had started when the close began.
    pub(super) started: Vec<ProcessHandle>,
    pub(super) closed: Option<Closed>,
}

impl CloseState {
    pub(super) fn due(&self) -> Option<Instant> {
        if self.killed && self.closed.is_none() {
            // Only the exit of bash itself is missing, which is reported by an event.
            return None;
        }
        Some(if self.closed.is_some() { self.look_at.min(self.kill_at) } else { self.kill_at })
    }
}
