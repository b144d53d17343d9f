//! A memory budget for responses that are built whole before they are sent, of all requests
//! together.
//!
//! Captured output takes its share only while the budget lasts, and is truncated after that. A
//! finished response takes what it needs and holds it until its client has read it, so that less is
//! left for others to capture. One tenant captures at most half of the budget, so that its commands,
//! however long they run, do not truncate the output of all others.

use isolet_sandbox::TenantId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One tenant may capture at most this fraction of the budget: one in N.
const TENANT_SHARE: i64 = 2;

/// The memory budget and the shares in it.
#[derive(Debug)]
pub(crate) struct ResponseMemory {
    /// Free bytes; negative while finished responses hold more than the budget.
    free: AtomicI64,
    /// The limit on captured output of one tenant, in bytes.
    tenant_max: i64,
    /// The number of bytes that each tenant may still capture. Contains only tenants that have a
    /// share.
    tenants: Mutex<HashMap<TenantId, Arc<AtomicI64>>>,
}

/// The share of one request, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    memory: Arc<ResponseMemory>,
    tenant: TenantId,
    /// The number of bytes that the tenant may still capture.
    tenant_free: Arc<AtomicI64>,
    bytes: i64,
}

impl ResponseMemory {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        Arc::new(Self {
            free: AtomicI64::new(bytes),
            tenant_max: bytes / TENANT_SHARE,
            tenants: Mutex::default(),
        })
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<AtomicI64>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a share without any memory yet.
    pub(crate) fn share(self: &Arc<Self>, tenant: &TenantId) -> MemoryShare {
        let mut tenants = self.tenants();
        let new = || Arc::new(AtomicI64::new(self.tenant_max));
        let tenant_free = Arc::clone(tenants.entry(tenant.clone()).or_insert_with(new));
        MemoryShare { memory: Arc::clone(self), tenant: tenant.clone(), tenant_free, bytes: 0 }
    }

    /// Reserves the whole size of a finished response, even if less is left.
    pub(crate) fn reserve(self: &Arc<Self>, tenant: &TenantId, bytes: u64) -> MemoryShare {
        let mut share = self.share(tenant);
        share.bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.free.fetch_sub(share.bytes, Ordering::Relaxed);
        share.tenant_free.fetch_sub(share.bytes, Ordering::Relaxed);
        share
    }
}

/// Takes up to `most` bytes of the rest, and returns how many it took.
fn take_from(left: &AtomicI64, most: i64) -> i64 {
    let part = |left: i64| most.min(left.max(0));
    let relaxed = Ordering::Relaxed;
    let before = left.fetch_update(relaxed, relaxed, |left| Some(left - part(left)));
    part(before.unwrap_or_default())
}

impl MemoryShare {
    /// Takes up to `wanted` bytes more, and returns how many it got.
    pub(crate) fn take_up_to(&mut self, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        let most = i64::try_from(wanted).unwrap_or(i64::MAX);
        let allowed = take_from(&self.tenant_free, most);
        let taken = take_from(&self.memory.free, allowed);
        self.tenant_free.fetch_add(allowed - taken, Ordering::Relaxed);
        self.bytes += taken;
        usize::try_from(taken).unwrap_or_default()
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.memory.free.fetch_add(self.bytes, Ordering::Relaxed);
        self.tenant_free.fetch_add(self.bytes, Ordering::Relaxed);
        let mut tenants = self.memory.tenants();
        // Two references: the map's and this one. Shares are created under the same lock.
        if Arc::strong_count(&self.tenant_free) == 2 {
            tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    #[test]
    fn shares_are_bounded_and_return_when_dropped() {
        let memory = ResponseMemory::new(200);
        let a = tenant("a");
        let b = tenant("b");
        let mut one = memory.share(&a);
        let mut two = memory.share(&b);
        assert_eq!((one.take_up_to(70), two.take_up_to(70), one.take_up_to(30)), (70, 70, 30));
        assert_eq!(two.take_up_to(100), 30);
        let made = memory.reserve(&a, 500);
        drop((one, two));
        assert_eq!(memory.share(&b).take_up_to(1), 0, "the answer holds more than there was");
        drop(made);
        assert_eq!(memory.share(&b).take_up_to(200), 100);
        assert!(memory.tenants().is_empty());
    }

    /// Promises: F20.
    #[test]
    fn one_tenant_gathers_at_most_half_of_all() {
        let memory = ResponseMemory::new(100);
        let greedy = tenant("greedy");
        let mut first = memory.share(&greedy);
        let mut second = memory.share(&greedy);
        assert_eq!((first.take_up_to(100), second.take_up_to(100)), (50, 0));
        assert_eq!(memory.share(&tenant("other")).take_up_to(100), 50);
        drop(first);
        assert_eq!(second.take_up_to(100), 50);
    }
}
