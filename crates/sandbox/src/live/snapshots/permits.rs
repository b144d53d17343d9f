//! Limits the number of copies that run at the same time: of all tenants, and of each.
//!
//! A copy first waits for its tenant's permit, then for one of all: a tenant that waits for its own
//! copies takes nothing from the others, and no copy waits for another one in a circle.

use crate::model::ids::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Maximum number of copies of all tenants, so that threads for other files are left.
const ALL_MAX: usize = 32;
/// Maximum number of copies of one tenant.
const TENANT_MAX: usize = 8;

/// The permits for copies of one kind.
pub(crate) struct CopyPermits {
    all: Semaphore,
    /// Only tenants that have or wait for a permit.
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// A permit for one copy.
pub(crate) struct CopyPermit<'a> {
    _one_of_all: Option<SemaphorePermit<'a>>,
    _own: TenantPermit<'a>,
}

/// A permit of a tenant, or a place in its queue.
struct TenantPermit<'a> {
    permits: &'a CopyPermits,
    tenant: TenantId,
    semaphore: Option<Arc<Semaphore>>,
    held: Option<OwnedSemaphorePermit>,
}

impl Default for CopyPermits {
    fn default() -> Self {
        Self { all: Semaphore::new(ALL_MAX), tenants: Mutex::default() }
    }
}

impl CopyPermits {
    /// Waits for a permit.
    pub(crate) async fn acquire(&self, tenant: &TenantId) -> CopyPermit<'_> {
        let semaphore = {
            let mut tenants = self.lock();
            let own = tenants.entry(tenant.clone());
            Arc::clone(own.or_insert_with(|| Arc::new(Semaphore::new(TENANT_MAX))))
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
        CopyPermit { _one_of_all: one_of_all, _own: own }
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

    /// The result of a future that need not wait.
    async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }

    #[tokio::test]
    async fn one_tenant_leaves_permits_for_others_and_nothing_is_left_of_it() {
        let permits = CopyPermits::default();
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
