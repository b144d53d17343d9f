//! What is refused to a sandbox from a given moment on.

use crate::{
    live::{entry::Entry, inner::Inner},
    model::network::{Mode, denied::Denied},
    sandbox::Sandbox,
};
use std::sync::Arc;

/// What is refused from a moment on.
#[derive(Clone)]
pub struct Denials {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    from: u64,
}

impl std::fmt::Debug for Denials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Denials")
            .field("sandbox", &self.entry.id)
            .field("from", &self.from)
            .finish()
    }
}

impl Denials {
    /// Begins anew.
    pub fn begin(&mut self) {
        self.from = self.entry.refusals.at();
    }

    /// Whether there is anybody to wait for.
    #[must_use]
    pub fn there(&self) -> bool {
        self.entry.view.borrow().record.body.network.mode() != Mode::None
            || self.entry.refusals.at() != self.from
    }

    /// What was refused until now. Waits a moment for what is just being told; cancel-safe.
    pub async fn told(&self) -> Denied {
        self.settle().await;
        self.now()
    }

    /// Waits a moment for what is just being told; cancel-safe.
    pub async fn settle(&self) {
        if self.there() {
            self.inner.egress.settle().await;
        }
    }

    /// What is known of it, without a wait.
    #[must_use]
    pub fn now(&self) -> Denied {
        self.entry.refusals.since(self.from)
    }
}

impl Sandbox {
    /// What is refused to it from now on.
    #[must_use]
    pub fn denials(&self) -> Denials {
        let inner = Arc::clone(&self.inner);
        let entry = Arc::clone(&self.entry);
        Denials { from: entry.refusals.at(), inner, entry }
    }

    /// What was refused to it within a time, in ms since 1970, as far as it is held.
    #[must_use]
    pub fn denied_within(&self, from_ms: i64, to_ms: Option<i64>) -> Denied {
        self.entry.refusals.within(from_ms, to_ms)
    }
}
