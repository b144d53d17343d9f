//! A memory budget that the requests of all tenants share. The server has two: one for what it
//! parses, and one for responses that are built whole before they are sent.
//!
//! A tenant may take at most as much as it then leaves free: one tenant alone at most half of the
//! budget, the next one half of the rest. So there is always room for a tenant that holds nothing,
//! however many others have taken what they could.
//!
//! What a finished command has written is held even above that part, because nothing can be run a
//! second time. It then counts against its own tenant only ([`MemoryShare::overdraw`]).

use isolet_sandbox::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory budget and the shares in it.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    state: Mutex<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    /// Bytes that nobody holds.
    free: u64,
    /// The bytes that each tenant holds. Contains only tenants that hold some.
    tenants: HashMap<TenantId, u64>,
}

/// The share of one request, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: Arc<MemoryBudget>,
    tenant: TenantId,
    /// Bytes that were free before.
    bytes: u64,
    /// Bytes above the tenant's part, which no other tenant lacks.
    overdrawn: u64,
}

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        let state = BudgetState { free: bytes, tenants: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a share without any memory yet.
    pub(crate) fn share(self: &Arc<Self>, tenant: &TenantId) -> MemoryShare {
        let budget = Arc::clone(self);
        MemoryShare { budget, tenant: tenant.clone(), bytes: 0, overdrawn: 0 }
    }

    /// The bytes that a tenant holds.
    pub(crate) fn held_by(&self, tenant: &TenantId) -> u64 {
        self.lock().held(tenant)
    }
}

impl BudgetState {
    fn held(&self, tenant: &TenantId) -> u64 {
        self.tenants.get(tenant).copied().unwrap_or_default()
    }

    /// How much more a tenant may take: afterwards it holds at most as much as it leaves.
    fn available(&self, tenant: &TenantId) -> u64 {
        self.free.saturating_sub(self.held(tenant)) / 2
    }

    fn hold(&mut self, tenant: &TenantId, bytes: u64) {
        match self.tenants.get_mut(tenant) {
            Some(held) => *held = held.saturating_add(bytes),
            None if bytes > 0 => drop(self.tenants.insert(tenant.clone(), bytes)),
            None => {}
        }
    }
}

impl MemoryShare {
    /// Takes up to `wanted` bytes more, and returns how many it got.
    pub(crate) fn take_up_to(&mut self, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        let mut state = self.budget.lock();
        let taken = (wanted as u64).min(state.available(&self.tenant));
        state.free -= taken;
        state.hold(&self.tenant, taken);
        drop(state);
        self.bytes += taken;
        // At most `wanted`.
        usize::try_from(taken).unwrap_or(wanted)
    }

    /// Takes `wanted` bytes more, or none.
    pub(crate) fn take(&mut self, wanted: usize) -> bool {
        let mut state = self.budget.lock();
        let taken = wanted as u64;
        if taken > state.available(&self.tenant) {
            return false;
        }
        state.free -= taken;
        state.hold(&self.tenant, taken);
        drop(state);
        self.bytes += taken;
        true
    }

    /// Takes `wanted` bytes more even if the tenant's part has less. What is above it counts against
    /// the tenant, and reduces nobody else's part.
    pub(crate) fn overdraw(&mut self, wanted: usize) {
        let taken = self.take_up_to(wanted);
        let above = (wanted - taken) as u64;
        self.budget.lock().hold(&self.tenant, above);
        self.overdrawn = self.overdrawn.saturating_add(above);
    }

    /// As [`Self::take`], but a tenant that holds nothing gets what it wants in any case, so that an
    /// answer that is longer than a part is answered.
    pub(crate) fn take_or_only(&mut self, wanted: usize) -> bool {
        if self.take(wanted) {
            return true;
        }
        let mut state = self.budget.lock();
        if state.held(&self.tenant) > 0 {
            return false;
        }
        let part = state.available(&self.tenant).min(wanted as u64);
        state.free -= part;
        state.hold(&self.tenant, wanted as u64);
        drop(state);
        self.bytes += part;
        self.overdrawn += wanted as u64 - part;
        true
    }

    /// Returns what this share holds.
    pub(crate) fn clear(&mut self) {
        let held = self.bytes.saturating_add(self.overdrawn);
        if held == 0 {
            return;
        }
        let mut state = self.budget.lock();
        state.free += self.bytes;
        let left = state.held(&self.tenant).saturating_sub(held);
        if left == 0 {
            state.tenants.remove(&self.tenant);
        } else if let Some(own) = state.tenants.get_mut(&self.tenant) {
            *own = left;
        }
        drop(state);
        self.bytes = 0;
        self.overdrawn = 0;
    }

    /// The bytes that the tenant holds, with all its shares.
    pub(crate) fn held_by_tenant(&self) -> u64 {
        self.budget.held_by(&self.tenant)
    }

    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.clear();
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
        let budget = MemoryBudget::new(200);
        let a = tenant("a");
        let b = tenant("b");
        let mut one = budget.share(&a);
        let mut two = budget.share(&b);
        assert_eq!((one.take_up_to(40), two.take_up_to(40)), (40, 40));
        assert!(!two.take(41), "it would hold 81, and leave 79");
        assert!(two.take(40) && !two.take(1));
        assert_eq!((budget.held_by(&a), budget.held_by(&b)), (40, 80));
        drop(two);
        assert_eq!(one.take_up_to(100), 60);
        one.clear();
        assert_eq!(budget.share(&b).take_up_to(200), 100);
        assert!(budget.lock().tenants.is_empty());
        assert_eq!(budget.lock().free, 200);
    }

    /// Promises: F20.
    #[test]
    fn one_tenant_holds_at_most_half_of_all() {
        let budget = MemoryBudget::new(100);
        let greedy = tenant("greedy");
        let mut first = budget.share(&greedy);
        let mut second = budget.share(&greedy);
        assert_eq!((first.take_up_to(100), second.take_up_to(100)), (50, 0));
        assert_eq!(budget.share(&tenant("other")).take_up_to(25), 25);
        drop(first);
        assert_eq!(second.take_up_to(100), 50);
    }

    /// Promises: F20.
    #[test]
    fn a_tenant_that_holds_nothing_gets_half_of_what_the_others_have_left() {
        let budget = MemoryBudget::new(1 << 20);
        let mut shares = Vec::new();
        for n in 1..8 {
            let mut share = budget.share(&tenant(&format!("t{n}")));
            assert_eq!(share.take_up_to(usize::MAX), 1 << (20 - n));
            shares.push(share);
        }
    }

    /// Promises: F20.
    #[test]
    fn what_a_tenant_overdraws_shortens_nobody_else() {
        let budget = MemoryBudget::new(100);
        let greedy = tenant("greedy");
        let mut share = budget.share(&greedy);
        share.overdraw(1000);
        assert_eq!((share.held_by_tenant(), budget.lock().free), (1000, 50));
        let mut more = budget.share(&greedy);
        assert_eq!(more.take_up_to(1), 0, "it has overdrawn");
        more.overdraw(500);
        assert_eq!(budget.share(&tenant("other")).take_up_to(100), 25);
        drop(share);
        assert_eq!(budget.held_by(&greedy), 500);
        drop(more);
        assert!(budget.lock().tenants.is_empty() && budget.lock().free == 100);
    }

    #[test]
    fn a_tenant_that_holds_nothing_may_hold_one_share_above_its_part() {
        let budget = MemoryBudget::new(100);
        let own = tenant("own");
        let mut only = budget.share(&own);
        assert!(!only.take(51) && only.take_or_only(51));
        assert!(!budget.share(&own).take_or_only(1));
        drop(only);
        assert!(budget.share(&own).take_or_only(50));
        assert_eq!(budget.lock().free, 100);
    }
}
