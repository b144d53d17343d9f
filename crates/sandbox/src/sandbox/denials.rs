//! Network denials from a moment on.

use crate::live::entry::SandboxEntry;
use crate::live::inner::Inner;
use crate::model::network::Mode;
use crate::model::network::denied::Denied;
use crate::sandbox::Sandbox;
use std::sync::Arc;

/// The network denials from a moment on.
#[derive(Clone)]
pub struct Denials {
    inner: Arc<Inner>,
    entry: Arc<SandboxEntry>,
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
    /// Starts again from the present moment.
    pub fn begin(&mut self) {
        self.from = self.entry.refusals.at();
    }

    /// Whether the sandbox has a veth pair that could report denials.
    #[must_use]
    pub fn there(&self) -> bool {
        self.entry.view.borrow().record.body.network.mode() != Mode::None
            || self.entry.refusals.at() != self.from
    }

    /// The denials up to now. Waits briefly for those that are just being reported. Cancel-safe.
    pub async fn settled(&self) -> Denied {
        self.settle().await;
        self.now()
    }

    /// Waits briefly for denials that are just being reported. Cancel-safe.
    pub async fn settle(&self) {
        if self.there() {
            self.inner.egress.settle().await;
        }
    }

    /// The denials that are already known, without waiting.
    #[must_use]
    pub fn now(&self) -> Denied {
        self.entry.refusals.since(self.from)
    }
}

impl Sandbox {
    /// Collects the network denials from now on.
    #[must_use]
    pub fn denials(&self) -> Denials {
        let inner = Arc::clone(&self.inner);
        let entry = Arc::clone(&self.entry);
        Denials { from: entry.refusals.at(), inner, entry }
    }

    /// The network denials within a period, in ms since 1970, as far as they are still in the log.
    #[must_use]
    pub fn denied_within(&self, from_ms: i64, to_ms: Option<i64>) -> Denied {
        self.entry.refusals.within(from_ms, to_ms)
    }
}
