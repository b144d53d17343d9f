//! Limits how many connections of each kind a tenant may use at once, so that no key takes all of
//! them.
//!
//! A request holds a [`Permit`] from its head to the last byte of its response; an upgraded request
//! holds it as long as its socket lives. The permit is a guard, so it is returned however a stream
//! ends. There are four limits, each with an error of its own ([`LimitExceeded`]):
//!
//! 1. the tenant's requests of one [`ConnectionKind`],
//! 2. the tenant's requests of all kinds but [`ConnectionKind::Call`], so that a tenant at its
//!    limit can still list, stop and delete,
//! 3. the last [`ConnectionLimits::reserve`] connections, which are left to tenants with few
//!    connections (calls of all tenants may take half of them),
//! 4. all requests of the server.
//!
//! Connections without a permit (they are idle, or have not sent a key yet) are the concern of
//! [`crate::connection::connections`].

use crate::connection::connections::{BusyGuard, ClientConnection};
use crate::limits::kind::ConnectionKind;
use crate::limits::limit_exceeded::LimitExceeded;
use crate::limits::settings::ConnectionLimits;
use isolet_metrics::RefusedRequests;
use isolet_sandbox::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many tenants without requests keep their entry, so that a request rarely allocates one.
const IDLE_TENANTS_MAX: usize = 1024;

/// Counts the requests in progress.
#[derive(Debug)]
pub(crate) struct Limiter {
    limits: ConnectionLimits,
    state: Mutex<RequestCounts>,
    refused: RefusedRequests,
}

#[derive(Debug, Default)]
struct RequestCounts {
    total: usize,
    tenants: HashMap<Arc<TenantId>, Counts>,
}

/// Requests of one tenant, by kind.
#[derive(Debug, Default, Clone, Copy)]
struct Counts([usize; ConnectionKind::COUNT]);

impl Counts {
    /// Requests that count against [`ConnectionLimits::tenant_max`].
    fn held(&self) -> usize {
        self.all() - self.0[ConnectionKind::Call.index()]
    }

    fn all(&self) -> usize {
        self.0.iter().sum()
    }
}

/// The right to answer one request, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<Limiter>,
    tenant: Arc<TenantId>,
    kind: ConnectionKind,
    /// Keeps the connection open while the server is full; `None` for a call within the server.
    _busy: Option<BusyGuard>,
}

impl Limiter {
    /// `refused` counts the requests above a limit.
    pub(crate) fn new(limits: ConnectionLimits, refused: RefusedRequests) -> Self {
        Self { limits, state: Mutex::default(), refused }
    }

    /// The numbers of requests in progress, in the order of [`ConnectionKind::ALL`].
    pub(crate) fn in_progress(&self) -> [usize; ConnectionKind::COUNT] {
        let state = self.lock();
        ConnectionKind::ALL
            .map(|kind| state.tenants.values().map(|counts| counts.0[kind.index()]).sum())
    }

    fn lock(&self) -> MutexGuard<'_, RequestCounts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one request of `tenant`, on `connection` if it came by one.
    ///
    /// # Errors
    /// [`LimitExceeded`] when a limit is reached; the request is not counted then.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        tenant: &TenantId,
        kind: ConnectionKind,
        connection: Option<&Arc<ClientConnection>>,
    ) -> Result<Permit, LimitExceeded> {
        let mut state = self.lock();
        let (own, counts) = match state.tenants.get_key_value(tenant) {
            Some((own, counts)) => (Arc::clone(own), *counts),
            None => (Arc::new(tenant.clone()), Counts::default()),
        };
        self.check(&own, kind, counts, state.total).inspect_err(|excess| {
            match excess {
                LimitExceeded::Kind { .. } => &self.refused.kind,
                LimitExceeded::Tenant { .. } => &self.refused.tenant,
                LimitExceeded::Reserve { .. } => &self.refused.reserve,
                LimitExceeded::Server => &self.refused.server,
            }
            .inc();
        })?;
        state.total += 1;
        if counts.all() == 0 && state.tenants.len() >= IDLE_TENANTS_MAX {
            state.tenants.retain(|_, counts| counts.all() > 0);
        }
        state.tenants.entry(Arc::clone(&own)).or_default().0[kind.index()] += 1;
        drop(state);
        let busy = connection.map(ClientConnection::busy);
        Ok(Permit { limiter: Arc::clone(self), tenant: own, kind, _busy: busy })
    }

    fn check(
        &self,
        tenant: &Arc<TenantId>,
        kind: ConnectionKind,
        counts: Counts,
        total: usize,
    ) -> Result<(), LimitExceeded> {
        let limits = &self.limits;
        let refused = |excess: fn(Arc<TenantId>, usize) -> LimitExceeded, most| {
            Err(excess(Arc::clone(tenant), most))
        };
        let most = limits.of(kind);
        if counts.0[kind.index()] >= most {
            return Err(LimitExceeded::Kind { tenant: Arc::clone(tenant), kind, most });
        }
        if kind != ConnectionKind::Call && counts.held() >= limits.tenant_max {
            return refused(
                |tenant, most| LimitExceeded::Tenant { tenant, most },
                limits.tenant_max,
            );
        }
        if total >= limits.requests_max() {
            return Err(LimitExceeded::Server);
        }
        let free = limits.requests_max() - total;
        // The error asks the client to close something, which takes a call: calls get half of the
        // reserve.
        let kept = if kind == ConnectionKind::Call { limits.reserve / 2 } else { limits.reserve };
        if free <= kept && counts.all() >= limits.assured() {
            return refused(
                |tenant, most| LimitExceeded::Reserve { tenant, most },
                limits.assured(),
            );
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limiter.lock();
        state.total = state.total.saturating_sub(1);
        if let Some(counts) = state.tenants.get_mut(&*self.tenant) {
            let count = &mut counts.0[self.kind.index()];
            *count = count.saturating_sub(1);
        }
    }
}

/// The permit of a request that becomes a WebSocket; the socket's task takes it over.
#[derive(Debug, Clone)]
pub(crate) struct SocketPermit {
    _permit: Arc<Permit>,
}

impl SocketPermit {
    pub(crate) fn new(permit: Permit) -> Self {
        Self { _permit: Arc::new(permit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limiter(max: usize) -> Arc<Limiter> {
        Arc::new(Limiter::new(ConnectionLimits::of_max(max), RefusedRequests::default()))
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    /// Acquires as many permits of one kind as possible, and returns the error that ended it.
    fn fill(
        limiter: &Arc<Limiter>,
        who: &str,
        kind: ConnectionKind,
    ) -> (Vec<Permit>, LimitExceeded) {
        let mut all = Vec::new();
        loop {
            match limiter.acquire(&tenant(who), kind, None) {
                Ok(permit) => all.push(permit),
                Err(excess) => return (all, excess),
            }
        }
    }

    #[test]
    fn t19_a_tenant_gets_its_limit_of_each_kind_and_permits_return_when_dropped() {
        let limiter = limiter(400);
        for kind in ConnectionKind::ALL {
            for _ in 0..2 {
                let (all, excess) = fill(&limiter, "a", kind);
                assert_eq!(all.len(), ConnectionLimits::of_max(400).of(kind), "{kind:?}");
                assert!(matches!(excess, LimitExceeded::Kind { kind: of, .. } if of == kind));
            }
        }
        assert_eq!(limiter.lock().total, 0);
    }

    #[test]
    fn t19_a_tenant_at_its_limit_still_makes_calls_and_other_tenants_are_not_affected() {
        let limiter = limiter(400);
        let mut held = Vec::new();
        for kind in ConnectionKind::ALL.into_iter().filter(|kind| *kind != ConnectionKind::Call) {
            held.extend(fill(&limiter, "a", kind).0);
        }
        assert_eq!(held.len(), limiter.limits.tenant_max);
        assert_eq!(limiter.in_progress().iter().sum::<usize>(), held.len());
        assert!(limiter.refused.kind.get() + limiter.refused.tenant.get() > 0);
        let refused = limiter.acquire(&tenant("a"), ConnectionKind::Exec, None);
        assert!(matches!(refused, Err(LimitExceeded::Kind { .. } | LimitExceeded::Tenant { .. })));
        assert!(limiter.acquire(&tenant("a"), ConnectionKind::Call, None).is_ok());
        for kind in ConnectionKind::ALL {
            assert!(limiter.acquire(&tenant("b"), kind, None).is_ok(), "{kind:?}");
        }
    }

    /// Promises: T20.
    #[test]
    fn t19_many_tenants_together_leave_the_reserve_to_others() {
        let limiter = limiter(400);
        let mut held = Vec::new();
        for name in ["a", "b", "c", "d"] {
            for kind in ConnectionKind::ALL {
                held.extend(fill(&limiter, name, kind).0);
            }
        }
        let limits = &limiter.limits;
        let free = limits.requests_max() - held.len();
        assert!(free + 2 * limits.assured() >= limits.reserve / 2, "{free}");
        let (few, excess) = fill(&limiter, "e", ConnectionKind::Exec);
        assert_eq!(few.len(), limits.assured());
        assert!(matches!(excess, LimitExceeded::Reserve { .. }), "{excess:?}");
    }

    #[test]
    fn tenants_without_connections_are_forgotten() {
        let limiter = limiter(400);
        for n in 0..3 * IDLE_TENANTS_MAX {
            drop(limiter.acquire(&tenant(&n.to_string()), ConnectionKind::Call, None));
        }
        assert!(limiter.lock().tenants.len() <= IDLE_TENANTS_MAX);
    }

    proptest! {
        #[test]
        fn the_counts_match_the_permits(
            steps in proptest::collection::vec((0..3_usize, 0..ConnectionKind::COUNT, any::<bool>()), 0..400),
            max in 1..200_usize,
        ) {
            let limiter = limiter(max);
            let mut held: Vec<Permit> = Vec::new();
            for (who, kind, leave) in steps {
                if leave && !held.is_empty() {
                    held.swap_remove(who % held.len());
                    continue;
                }
                let entered = limiter.acquire(&tenant(["a", "b", "c"][who]), ConnectionKind::ALL[kind], None);
                held.extend(entered.ok());
                let state = limiter.lock();
                prop_assert_eq!(state.total, held.len());
                prop_assert!(state.total <= limiter.limits.requests_max());
                for counts in state.tenants.values() {
                    prop_assert!(counts.held() <= limiter.limits.tenant_max);
                }
            }
            drop(held);
            prop_assert_eq!(limiter.lock().total, 0);
        }
    }
}
