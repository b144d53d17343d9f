//! The sandboxes of the warm pool that wait for a create.

use crate::{
    live::{prepared::Made, warm_pool::shelves::Shelves},
    model::record::Kind,
};
use isolet_wire::launcher::Root;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All that wait.
#[derive(Default)]
pub(crate) struct WarmPool {
    shelves: Mutex<Shelves>,
    pub(super) more: Notify,
}

impl WarmPool {
    pub(super) fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back one that was not used after all.
    pub(crate) fn put(&self, made: Made) {
        self.lock().put(made);
        self.more.notify_one();
    }

    /// How many plain ones wait.
    pub(crate) fn count(&self) -> usize {
        self.lock().count()
    }

    /// Whether one of this name waits, or is being made.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.lock().has(name)
    }

    /// What their roots are made of: these layers are in use.
    pub(crate) fn roots(&self) -> Vec<Root> {
        self.lock().roots()
    }

    /// The link of this one is gone, or of all: they are not to be used.
    pub(crate) fn unlinked(&self, which: Option<&str>) {
        let gone = |name: &str, kind: &Kind| match which {
            Some(which) => name == which,
            None => kind.linked,
        };
        self.lock().lost(gone);
        self.more.notify_one();
    }
}
