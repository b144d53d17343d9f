//! Who speaks: one link a sandbox, known by its address, with its rules and what it was answered.

use crate::bucket::Bucket;
use crate::dns::resolvers::Resolvers;
use crate::freed::Freed;
use crate::judge::{Shown, Way, judge};
use crate::lend::{Lent, authority::Authority};
use crate::pins::Pins;
use crate::tells::{Tells, What};
use isolet_wire::lend::Credential;
use isolet_wire::network::{EdgeTell, Guard, Policy};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// Connections of one link that are carried at the same time.
pub const CARRIED_MAX: usize = 1024;
/// Connections of one link that have not yet shown where they want to go.
pub const UNDECIDED_MAX: usize = 128;
/// Memory for long heads of requests of one link, in bytes. It is enough for about 120 heads of
/// 64 KiB at once, or 70 that grow to 128 KiB by their credentials.
pub const LONG_HEADS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Names that one link waits for at the same time.
pub const LOOKUPS_MAX: usize = 64;
/// Questions of one link: at once, and a second.
const QUESTIONS: (u32, u32) = (300, 100);

/// One link.
#[derive(Debug)]
pub struct Link {
    /// Its address.
    pub address: Ipv4Addr,
    policy: RwLock<Arc<Policy>>,
    lent: RwLock<Arc<Lent>>,
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
    fn new(address: Ipv4Addr, policy: Policy, freed: Freed) -> Self {
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
    pub fn policy(&self) -> Arc<Policy> {
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
    pub fn judge(&self, to: SocketAddrV4, shown: Shown<'_>) -> Way {
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
    pub fn changes(&self) -> Option<watch::Receiver<u64>> {
        let changes = self.changes.lock().expect("nobody panics with it");
        changes.as_ref().map(watch::Sender::subscribe)
    }

    fn changed(&self) {
        if let Some(changes) = &*self.changes.lock().expect("nobody panics with it") {
            changes.send_modify(|count| *count += 1);
        }
    }

    fn end(&self) {
        self.changes.lock().expect("nobody panics with it").take();
    }
}

/// All links, and what holds for all of them.
#[derive(Debug, Default)]
pub struct Links {
    all: RwLock<HashMap<Ipv4Addr, Arc<Link>>>,
    guard: RwLock<Arc<Guard>>,
    resolvers: Resolvers,
    tells: Tells,
    pub(crate) freed: Freed,
}

impl Links {
    /// The link with this address.
    #[must_use]
    pub fn find(&self, address: Ipv4Addr) -> Option<Arc<Link>> {
        self.all.read().expect("nobody panics with it").get(&address).cloned()
    }

    /// What is closed for all.
    #[must_use]
    pub fn guard(&self) -> Arc<Guard> {
        self.guard.read().expect("nobody panics with it").clone()
    }

    /// Who is asked for names.
    #[must_use]
    pub fn resolvers(&self) -> Arc<Vec<SocketAddr>> {
        self.resolvers.get()
    }

    /// Rules of a link, new or changed.
    pub fn set(&self, address: Ipv4Addr, policy: Policy) {
        let mut all = self.all.write().expect("nobody panics with it");
        match all.get(&address) {
            Some(link) => {
                *link.policy.write().expect("nobody panics with it") = Arc::new(policy);
                link.changed();
            }
            None => {
                all.insert(address, Arc::new(Link::new(address, policy, self.freed.clone())));
            }
        }
    }

    /// Credentials of a link, in place of those that it had. Its authority, where it has one, is
    /// made once; it is told each time.
    pub fn lend(
        &self,
        address: Ipv4Addr,
        credentials: Vec<Credential>,
        tls: bool,
    ) -> Option<EdgeTell> {
        let link = self.find(address)?;
        let mut lent = link.lent.write().expect("nobody panics with it");
        let authority = match (&lent.authority, tls) {
            (Some(known), true) => Some(known.clone()),
            (None, true) => Some(Arc::new(Authority::new(address).ok()?)),
            (_, false) => None,
        };
        *lent = Arc::new(Lent::new(credentials, authority.clone()));
        authority.map(|it| EdgeTell::Authority { address, certificate: it.certificate() })
    }

    /// A link is gone.
    pub fn forget(&self, address: Ipv4Addr) {
        if let Some(link) = self.all.write().expect("nobody panics with it").remove(&address) {
            link.end();
        }
    }

    /// What is closed, and who is asked for names.
    pub fn guarded(&self, guard: Guard, resolvers: Vec<SocketAddr>) {
        *self.guard.write().expect("nobody panics with it") = Arc::new(guard);
        self.resolvers.set(resolvers);
        for link in self.all.read().expect("nobody panics with it").values() {
            link.changed();
        }
    }

    /// Notes that a connection was refused; called before whoever asked is answered.
    pub(crate) fn refused(&self, link: &Link, host: &str, port: u16, rule: &str) {
        let what = What {
            host: host.to_owned(),
            port: Some(port),
            protocol: "tcp",
            rule: rule.to_owned(),
        };
        self.tells.note(link.address, what);
    }

    /// Notes that a name was not answered.
    pub(crate) fn unnamed(&self, link: &Link, host: &str, rule: &str) {
        let what =
            What { host: host.to_owned(), port: None, protocol: "dns", rule: rule.to_owned() };
        self.tells.note(link.address, what);
    }

    /// Refusals that are to be told.
    #[must_use]
    pub fn tells(&self) -> Vec<EdgeTell> {
        self.tells.take()
    }

    /// Bytes that were carried since the last call.
    #[must_use]
    pub fn carried(&self) -> Vec<EdgeTell> {
        let all = self.all.read().expect("nobody panics with it");
        let each = all.values().map(|link| EdgeTell::Carried {
            address: link.address,
            out: link.out.swap(0, Relaxed),
            back: link.back.swap(0, Relaxed),
        });
        let some = |tell: &EdgeTell| !matches!(tell, EdgeTell::Carried { out: 0, back: 0, .. });
        each.filter(some).collect()
    }
}
