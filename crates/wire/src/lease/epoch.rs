//! Revisions of etcd, which distinguish owners and registrations.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A revision of etcd at which a node became the owner of a sandbox, or a member of the fleet. Later
/// owners have greater epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(i64);

impl Epoch {
    /// The epoch of this revision of etcd.
    #[must_use]
    pub fn of_revision(revision: i64) -> Self {
        Self(revision)
    }

    /// The revision of etcd.
    #[must_use]
    pub fn revision(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
