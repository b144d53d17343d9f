//! Who speaks: one link a sandbox, known by its address, with its rules and what it was answered.

use super::dns_cache::Pins;
use super::freed_memory::Freed;
use super::token_bucket::Bucket;
use crate::credentials::Lent;
use crate::policy::{Shown, Way, judge};
use isolet_wire::network::Policy;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// Connections of one link that are carried at the same time.
pub(crate) const CARRIED_MAX: usize = 1024;
/// Connections of one link that have not yet shown where they want to go.
pub(crate) const UNDECIDED_MAX: usize = 128;
/// Memory for long heads of requests of one link, in bytes. It is enough for about 120 heads of
/// 64 KiB at once, or 70 that grow to 128 KiB by their credentials.
pub(crate) const LONG_HEADS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Names that one link waits for at the same time.
pub(crate) const LOOKUPS_MAX: usize = 64;
/// Questions of one link: at once, and a second.
const QUESTIONS: (u32, u32) = (300, 100);

/// One link.
#[derive(Debug)]
pub(crate) struct Link {
    /// Its address.
    pub(crate) address: Ipv4Addr,
    pub(super) policy: RwLock<Arc<Policy>>,
    pub(super) lent: RwLock<Arc<Lent>>,
    /// Counts what may forbid what runs; ends with the link.
    changes: Mutex<Option<watch::Sender<u64>>>,
    pub(crate) pins: Mutex<Pins>,
    questions: Mutex<Bucket>,
    pub(crate) lookups: Arc<Semaphore>,
    pub(crate) undecided: Arc<Semaphore>,
    pub(crate) carried: Arc<Semaphore>,
    /// Bytes of [`LONG_HEADS_BYTES_MAX`] that are free.
    pub(crate) long_heads: Arc<Semaphore>,
    /// What its connections have freed; counted for all links together.
    pub(crate) freed: Freed,
    /// Bytes from the sandbox, not yet told.
    pub(crate) out: AtomicU64,
    /// Bytes to the sandbox, not yet told.
    pub(crate) back: AtomicU64,
}

impl Link {
    pub(super) fn new(address: Ipv4Addr, policy: Policy, freed: Freed) -> Self {
        Self {
            address,
            policy: RwLock::new(Arc::new(policy)),
            lent: RwLock::default(),
            changes: Mutex::new(Some(watch::Sender::new(0))),
            pins: Mutex::default(),
            questions: Mutex::new(Bucket::new(QUESTIONS.0, QUESTIONS.1, Instant::now())),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            undecided: Arc::new(Semaphore::new(UNDECIDED_MAX)),
            carried: Arc::new(Semaphore::new(CARRIED_MAX)),
            long_heads: Arc::new(Semaphore::new(LONG_HEADS_BYTES_MAX)),
            freed,
            out: AtomicU64::new(0),
            back: AtomicU64::new(0),
        }
    }

    /// Its rules.
    #[must_use]
    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().expect("nobody panics with it").clone()
    }

    /// Its credentials.
    pub(crate) fn lent(&self) -> Arc<Lent> {
        self.lent.read().expect("nobody panics with it").clone()
    }

    /// Whether it may ask for a name now.
    pub(crate) fn may_ask(&self) -> bool {
        self.questions.lock().expect("nobody panics with it").take(Instant::now())
    }

    /// Judges a connection by its rules and by what it was answered.
    #[must_use]
    pub(crate) fn judge(&self, to: SocketAddrV4, shown: Shown<'_>) -> Way {
        let names = match shown {
            Shown::Nothing => self.names(*to.ip()),
            _ => Vec::new(),
        };
        judge(&self.policy(), to, shown, &names)
    }

    /// The names that an address was answered for.
    pub(crate) fn names(&self, address: Ipv4Addr) -> Vec<String> {
        self.pins.lock().expect("nobody panics with it").names(address, Instant::now())
    }

    pub(crate) fn stands(&self, name: &str, address: Ipv4Addr) -> bool {
        self.pins.lock().expect("nobody panics with it").stands(name, address, Instant::now())
    }

    pub(crate) fn pin(&self, name: &str, answer: Vec<Ipv4Addr>, ttl: Duration) {
        self.pins.lock().expect("nobody panics with it").pin(name, answer, ttl, Instant::now());
    }

    pub(crate) fn pinned(&self, name: &str) -> Option<(Vec<Ipv4Addr>, Duration)> {
        self.pins.lock().expect("nobody panics with it").fresh(name, Instant::now())
    }

    /// Says whenever what runs is to be judged again; `None`: the link is gone.
    #[must_use]
    pub(crate) fn changes(&self) -> Option<watch::Receiver<u64>> {
        let changes = self.changes.lock().expect("nobody panics with it");
        changes.as_ref().map(watch::Sender::subscribe)
    }

    pub(super) fn changed(&self) {
        if let Some(changes) = &*self.changes.lock().expect("nobody panics with it") {
            changes.send_modify(|count| *count += 1);
        }
    }

    pub(super) fn end(&self) {
        self.changes.lock().expect("nobody panics with it").take();
    }
}
