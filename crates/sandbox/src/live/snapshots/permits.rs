//! Limits how many operations of one kind run at the same time: of all tenants, and of each.
//!
//! An operation first waits for its tenant's permit, then for one of all: a tenant that waits for its
//! own operations takes nothing from the others, and none waits for another one in a circle.

use crate::model::ids::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The permits for operations of one kind.
pub(crate) struct FairPermits {
    all: Semaphore,
    /// Maximum number of one tenant.
    tenant_max: usize,
    /// Only tenants that have or wait for a permit.
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// A permit for one operation.
pub(crate) struct FairPermit<'a> {
    _one_of_all: Option<SemaphorePermit<'a>>,
    _own: TenantPermit<'a>,
}

/// A permit of a tenant, or a place in its queue.
struct TenantPermit<'a> {
    permits: &'a FairPermits,
    tenant: TenantId,
    semaphore: Option<Arc<Semaphore>>,
    held: Option<OwnedSemaphorePermit>,
}

impl FairPermits {
    /// Permits for at most `all` operations, and `tenant_max` of each tenant.
    pub(crate) fn new(all: usize, tenant_max: usize) -> Self {
        Self { all: Semaphore::new(all), tenant_max, tenants: Mutex::default() }
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self, tenant: &TenantId) -> FairPermit<'_> {
        let semaphore = {
            let mut tenants = self.lock();
            let own = tenants.entry(tenant.clone());
            Arc::clone(own.or_insert_with(|| Arc::new(Semaphore::new(self.tenant_max))))
        };
        // Created before the wait, which may be dropped.
        let mut own = TenantPermit {
            permits: self,
            tenant: tenant.clone(),
            semaphore: Some(Arc::clone(&semaphore)),
            held: None,
        };
        // The semaphores are never closed.
        own.held = semaphore.acquire_owned().await.ok();
        let one_of_all = self.all.acquire().await.ok();
        FairPermit { _one_of_all: one_of_all, _own: own }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<Semaphore>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TenantPermit<'_> {
    fn drop(&mut self) {
        let mut tenants = self.permits.lock();
        self.held = None;
        self.semaphore = None;
        // No other permit and no other place in the queue refers to it.
        if tenants.get(&self.tenant).is_some_and(|own| Arc::strong_count(own) == 1) {
            tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::time::Duration;

    const ALL_MAX: usize = 32;
    const TENANT_MAX: usize = 8;

    /// The result of a future that need not wait.
    async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }

    #[tokio::test]
    async fn one_tenant_leaves_permits_for_others_and_nothing_is_left_of_it() {
        let permits = FairPermits::new(ALL_MAX, TENANT_MAX);
        let [own, other]: [TenantId; 2] = ["own", "other"].map(|name| name.parse().unwrap());
        let mut held = Vec::new();
        for _ in 0..TENANT_MAX {
            held.push(now(permits.acquire(&own)).await.expect("a permit"));
        }
        assert!(now(permits.acquire(&own)).await.is_none(), "its limit");
        held.push(now(permits.acquire(&other)).await.expect("another tenant has its own"));
        held.remove(0);
        held.push(now(permits.acquire(&own)).await.expect("one was returned"));
        drop(held);
        assert!(permits.lock().is_empty());
        let tenants = (0..=ALL_MAX).map(|name| format!("t{name}").parse().unwrap());
        let tenants: Vec<TenantId> = tenants.collect();
        let (last, first) = tenants.split_last().unwrap();
        let mut all = Vec::new();
        for one in first {
            all.push(now(permits.acquire(one)).await.expect("a permit"));
        }
        assert!(now(permits.acquire(last)).await.is_none(), "the limit of all");
        drop(all);
        assert!(permits.lock().is_empty());
    }
}
