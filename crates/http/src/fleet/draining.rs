//! How a node is drained, and how far that is.

use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use utoipa::ToSchema;

/// Maximum number of sandboxes that are named which could not be moved.
pub(crate) const LEFT_MAX: usize = 100;

/// How a node is drained.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct DrainOptions {
    /// No further move begins after this time, in seconds; `None`: no limit.
    pub(crate) timeout_s: Option<u64>,
}

/// How far a drain is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = DrainProgress)]
pub(crate) struct DrainProgress {
    /// The node.
    pub(crate) node: String,
    /// Whether it is still running.
    pub(crate) running: bool,
    /// The sandboxes that the node had when the drain began.
    pub(crate) total: usize,
    /// How many were moved to another node.
    pub(crate) moved: usize,
    /// How many slept, and are only in the object store now.
    pub(crate) stored: usize,
    /// How many are still on the node.
    pub(crate) remaining: usize,
    /// Those that could not be moved so far, the first 100.
    pub(crate) left: Vec<DrainLeft>,
}

/// A sandbox that could not be moved.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = DrainLeft)]
pub(crate) struct DrainLeft {
    /// The sandbox, as `TENANT/ID`.
    pub(crate) sandbox: String,
    /// The code of the error.
    pub(crate) code: String,
    /// Why it was not moved.
    pub(crate) reason: String,
}

/// The drain of this node, if there was one since the start of its server.
#[derive(Default)]
pub(crate) struct Drains(Mutex<Option<DrainProgress>>);

impl Drains {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<DrainProgress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut DrainProgress)) {
        if let Some(progress) = &mut *self.lock() {
            change(progress);
        }
    }
}
