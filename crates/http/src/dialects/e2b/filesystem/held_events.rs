//! Events that wait to be polled, within limits on the memory of one watcher, one tenant and the server.

use crate::dialects::e2b::filesystem::changes::FilesystemEvent;
use isolet_sandbox::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many bytes of events of one watcher wait.
const OF_WATCHER_BYTES_MAX: usize = 1024 * 1024;
/// How many bytes of events of all watchers wait.
const BYTES_MAX: usize = 40 * 1024 * 1024;
/// How many of them are of one tenant.
const OF_TENANT_BYTES_MAX: usize = BYTES_MAX / 4;

/// The bytes of the events that wait on a server.
#[derive(Debug, Default)]
pub(super) struct SharedBudget(Mutex<Budget>);

#[derive(Debug, Default)]
struct Budget {
    all: usize,
    /// By tenant, without those that have none.
    of_tenant: HashMap<TenantId, usize>,
}

impl SharedBudget {
    /// Reserves bytes, unless a limit forbids it.
    fn reserve(&self, tenant: &TenantId, bytes: usize) -> bool {
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = budget.of_tenant.get(tenant).copied().unwrap_or_default();
        let fits = own + bytes <= OF_TENANT_BYTES_MAX && budget.all + bytes <= BYTES_MAX;
        if fits && bytes > 0 {
            budget.all += bytes;
            budget.of_tenant.insert(tenant.clone(), own + bytes);
        }
        fits
    }

    fn release(&self, tenant: &TenantId, bytes: usize) {
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        budget.all = budget.all.saturating_sub(bytes);
        let own = budget.of_tenant.get(tenant).copied().unwrap_or_default();
        match own.saturating_sub(bytes) {
            0 => budget.of_tenant.remove(tenant),
            rest => budget.of_tenant.insert(tenant.clone(), rest),
        };
    }
}

/// The events of one watcher, in their order.
#[derive(Debug)]
pub(super) struct HeldEvents {
    events: Vec<FilesystemEvent>,
    /// What they take.
    bytes: usize,
    budget: Arc<SharedBudget>,
    tenant: TenantId,
}

impl HeldEvents {
    /// None, of a watcher of this tenant.
    pub(super) fn new(budget: Arc<SharedBudget>, tenant: TenantId) -> Self {
        Self { events: Vec::new(), bytes: 0, budget, tenant }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Adds events, all or none. `false` means none, because they are more than may wait.
    #[must_use]
    pub(super) fn push(&mut self, events: Vec<FilesystemEvent>) -> bool {
        let bytes: usize = events.iter().map(FilesystemEvent::held_bytes).sum();
        let fits =
            self.bytes + bytes <= OF_WATCHER_BYTES_MAX && self.budget.reserve(&self.tenant, bytes);
        if fits {
            self.bytes += bytes;
            self.events.extend(events);
        }
        fits
    }

    /// Takes all events.
    pub(super) fn take(&mut self) -> Vec<FilesystemEvent> {
        self.budget.release(&self.tenant, std::mem::take(&mut self.bytes));
        std::mem::take(&mut self.events)
    }
}

impl Drop for HeldEvents {
    fn drop(&mut self) {
        self.budget.release(&self.tenant, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::e2b::filesystem::changes::{Translated, translate};
    use isolet_wire::response::{FileChange, FileChangeKind};

    /// An event whose path has this length.
    fn event(bytes: usize) -> Vec<FilesystemEvent> {
        let path = vec![b'a'; bytes];
        let kind = FileChangeKind::Deleted;
        let change = FileChange { kind, path, to: None, directory: false };
        let Translated::Events(events) = translate(&change) else { panic!("events") };
        events
    }

    fn held(budget: &Arc<SharedBudget>, tenant: &str) -> HeldEvents {
        HeldEvents::new(Arc::clone(budget), TenantId::parse(tenant).unwrap())
    }

    fn all(budget: &SharedBudget) -> usize {
        budget.0.lock().unwrap().all
    }

    #[test]
    fn a_watcher_holds_as_much_as_its_limit() {
        let budget = Arc::default();
        let mut watcher = held(&budget, "a");
        assert!(watcher.push(event(1000)));
        assert!(!watcher.push(event(OF_WATCHER_BYTES_MAX)));
        assert_eq!(watcher.len(), 1);
        assert!(all(&budget) > 1000);
        assert_eq!(watcher.take().len(), 1);
        assert_eq!(all(&budget), 0);
        assert!(watcher.push(event(1000)));
        drop(watcher);
        assert_eq!(all(&budget), 0);
        assert!(budget.0.lock().unwrap().of_tenant.is_empty());
    }

    #[test]
    fn a_tenant_leaves_room_for_others() {
        let budget = Arc::default();
        let mut watchers = Vec::new();
        let fits = |tenant: &str, watchers: &mut Vec<HeldEvents>| {
            let mut watcher = held(&budget, tenant);
            let fits = watcher.push(event(OF_WATCHER_BYTES_MAX * 3 / 4));
            watchers.push(watcher);
            fits
        };
        let count = (0..100).filter(|_| fits("a", &mut watchers)).count();
        assert!((10..=13).contains(&count), "{count}");
        for tenant in ["b", "c", "d"] {
            assert!(fits(tenant, &mut watchers), "{tenant}");
        }
    }
}
