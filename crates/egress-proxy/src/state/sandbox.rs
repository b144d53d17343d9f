//! One sandbox as the egress proxy knows it: its rules, its credentials, and the DNS answers that
//! it was given.

use super::dns_cache::{CachedAnswer, DnsCache};
use super::freed_memory::FreedMemory;
use super::token_bucket::TokenBucket;
use crate::credentials::InjectedCredentials;
use crate::policy::{Decision, Destination, decide};
use isolet_wire::network::Policy;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// Open connections of one sandbox.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// Connections of one sandbox that have not yet shown which host they ask for.
pub(crate) const UNDECIDED_MAX: usize = 128;
/// Memory for long request heads of one sandbox, in bytes. It is enough for about 120 heads of
/// 64 KiB at once, or 70 that grow to 128 KiB by their credentials.
pub(crate) const LONG_HEADS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// DNS lookups of one sandbox that may be in flight.
pub(crate) const LOOKUPS_MAX: usize = 64;
/// DNS queries that one sandbox may send in a burst.
const QUERIES_BURST_MAX: u32 = 300;
/// DNS queries of one sandbox per second, after the burst.
const QUERIES_PER_SECOND: u32 = 100;

/// One sandbox, identified by its address.
#[derive(Debug)]
pub(crate) struct SandboxEntry {
    pub(crate) address: Ipv4Addr,
    policy: RwLock<Arc<Policy>>,
    pub(super) credentials: RwLock<Arc<InjectedCredentials>>,
    /// Counts changes that may forbid an open connection. `None` once the sandbox is gone.
    rule_changes: Mutex<Option<watch::Sender<u64>>>,
    dns_cache: Mutex<DnsCache>,
    queries: Mutex<TokenBucket>,
    pub(crate) limits: SandboxLimits,
    /// Memory that connections have freed, counted for all sandboxes together.
    pub(crate) freed_memory: FreedMemory,
    /// Bytes from the sandbox that are not reported yet.
    pub(crate) sent_bytes: AtomicU64,
    /// Bytes to the sandbox that are not reported yet.
    pub(crate) received_bytes: AtomicU64,
}

/// The limits of one sandbox. Each semaphore holds the permits that are left.
#[derive(Debug)]
pub(crate) struct SandboxLimits {
    /// DNS lookups that may still be started.
    pub(crate) lookups: Arc<Semaphore>,
    /// Connections that may wait until they show which host they ask for.
    pub(crate) undecided: Arc<Semaphore>,
    /// Connections that may still be opened.
    pub(crate) connections: Arc<Semaphore>,
    /// Bytes that long request heads may still take.
    pub(crate) long_heads: Arc<Semaphore>,
}

impl SandboxLimits {
    fn new() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            undecided: Arc::new(Semaphore::new(UNDECIDED_MAX)),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            long_heads: Arc::new(Semaphore::new(LONG_HEADS_BYTES_MAX)),
        }
    }
}

impl SandboxEntry {
    pub(super) fn new(address: Ipv4Addr, policy: Policy, freed_memory: FreedMemory) -> Self {
        let queries = TokenBucket::new(QUERIES_BURST_MAX, QUERIES_PER_SECOND, Instant::now());
        Self {
            address,
            policy: RwLock::new(Arc::new(policy)),
            credentials: RwLock::default(),
            rule_changes: Mutex::new(Some(watch::Sender::new(0))),
            dns_cache: Mutex::default(),
            queries: Mutex::new(queries),
            limits: SandboxLimits::new(),
            freed_memory,
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        self.notify_rule_change();
    }

    pub(crate) fn credentials(&self) -> Arc<InjectedCredentials> {
        self.credentials.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes one DNS query from the sandbox's rate limit; `false`: the limit is reached.
    pub(crate) fn take_query(&self) -> bool {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
    }

    /// Decides on a connection to `address`, by the rules and by the DNS answers that the sandbox
    /// was given.
    pub(crate) fn decide(&self, address: SocketAddrV4, destination: &Destination) -> Decision {
        let names = match destination {
            Destination::Unknown => self.names_of(*address.ip()),
            _ => Vec::new(),
        };
        decide(&self.policy(), address, destination, &names)
    }

    /// The names that were resolved to this address.
    pub(crate) fn names_of(&self, address: Ipv4Addr) -> Vec<String> {
        self.dns_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .names_of(address, Instant::now())
    }

    /// Whether this name was resolved to this address.
    pub(crate) fn was_resolved_to(&self, name: &str, address: Ipv4Addr) -> bool {
        let cache = self.dns_cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.was_resolved_to(name, address, Instant::now())
    }

    pub(crate) fn cache_answer(&self, name: &str, addresses: Vec<Ipv4Addr>, ttl: Duration) {
        let mut cache = self.dns_cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(name, addresses, ttl, Instant::now());
    }

    pub(crate) fn cached_answer(&self, name: &str) -> Option<CachedAnswer> {
        self.dns_cache.lock().unwrap_or_else(PoisonError::into_inner).get(name, Instant::now())
    }

    /// A receiver that changes whenever open connections must be checked again. `None`: the sandbox
    /// is gone.
    pub(crate) fn rule_changes(&self) -> Option<watch::Receiver<u64>> {
        let changes = self.rule_changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.as_ref().map(watch::Sender::subscribe)
    }

    pub(super) fn notify_rule_change(&self) {
        if let Some(changes) = &*self.rule_changes.lock().unwrap_or_else(PoisonError::into_inner) {
            changes.send_modify(|count| *count += 1);
        }
    }

    /// Ends all connections of the sandbox.
    pub(super) fn close(&self) {
        self.rule_changes.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
