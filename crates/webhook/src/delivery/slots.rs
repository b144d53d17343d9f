//! Limits on attempts that run at the same time. A tenant whose receivers are slow cannot take all
//! places of the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of attempts at the same time on this server.
const ATTEMPTS_MAX: usize = 32;
/// Maximum number of attempts of one tenant at the same time.
const TENANT_ATTEMPTS_MAX: usize = 8;

/// The places of all attempts.
pub(crate) struct Slots {
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The place of one attempt, which is free again when this is dropped.
pub(crate) struct Slot {
    _tenant: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Slots {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ATTEMPTS_MAX)), tenants: Mutex::default() }
    }
}

impl Slots {
    /// Waits for a place; `None` is never returned while the server runs.
    pub(crate) async fn take(&self, tenant: &str) -> Option<Slot> {
        let own = {
            let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
            let own = tenants.entry(tenant.to_owned());
            Arc::clone(own.or_insert_with(|| Arc::new(Semaphore::new(TENANT_ATTEMPTS_MAX))))
        };
        // The tenant's own place first, so that none waits while it holds one of the server's.
        let tenant = own.acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Slot { _tenant: tenant, _all: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a place is free now.
    async fn is_free(slots: &Slots, tenant: &str) -> bool {
        tokio::select! {
            biased;
            slot = slots.take(tenant) => slot.is_some(),
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn one_tenant_leaves_places_to_others() {
        let slots = Slots::default();
        let mut held = Vec::new();
        for _ in 0..TENANT_ATTEMPTS_MAX {
            held.push(slots.take("slow").await.unwrap());
        }
        assert!(!is_free(&slots, "slow").await, "the tenant has all of its places");
        assert!(is_free(&slots, "other").await);
        held.pop();
        assert!(is_free(&slots, "slow").await);
    }
}
