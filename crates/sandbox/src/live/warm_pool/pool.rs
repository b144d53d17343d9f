//! The warm pool, shared between creates and the task that fills it.

use crate::live::prepared::PreparedSandbox;
use crate::live::warm_pool::stock::WarmStock;
use crate::model::record::PoolKind;
use isolet_wire::launcher::Root;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The sandboxes that wait for a create.
#[derive(Default)]
pub(crate) struct WarmPool {
    stock: Mutex<WarmStock>,
    pub(super) more: Notify,
}

impl WarmPool {
    pub(super) fn lock(&self) -> MutexGuard<'_, WarmStock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a sandbox that was taken but not used.
    pub(crate) fn put(&self, made: PreparedSandbox) {
        self.lock().put(made);
        self.more.notify_one();
    }

    /// Number of waiting sandboxes of the plain kind.
    pub(crate) fn count(&self) -> usize {
        self.lock().count()
    }

    /// Whether a sandbox of this name waits or is being created.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.lock().has(name)
    }

    /// The roots of the waiting sandboxes, whose layers are therefore in use.
    pub(crate) fn roots(&self) -> Vec<Root> {
        self.lock().roots()
    }

    /// Discards the sandbox whose veth pair is gone, or every sandbox with one.
    pub(crate) fn on_veth_lost(&self, which: Option<&str>) {
        let gone = |name: &str, kind: &PoolKind| match which {
            Some(which) => name == which,
            None => kind.has_veth,
        };
        self.lock().lost(gone);
        self.more.notify_one();
    }
}
