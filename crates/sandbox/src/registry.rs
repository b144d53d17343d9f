//! Every sandbox of this server, by tenant and id; who is the first to name one makes it.

use crate::{
    Ended, Error, LinkError, Lost, SandboxId, SessionId, TenantId,
    awake::Uses,
    background::Background,
    driver::Order,
    info::{Info, Page},
    kept::Kept,
    network::{refused::Refusals, vault::Vault, way::Linked},
    notes::Notes,
    pool::{Pool, Watched},
    port::CONNECTIONS_MAX,
    ready::Made,
    record::{Body, Record},
    recordings::Recordings,
    scopes::Scopes,
    sessions::Sessions,
    state::State,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    ops::Bound,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Semaphore, mpsc, watch};

/// Orders that may wait for one driver.
const ORDERS_MAX: usize = 64;

/// What everybody may know of a sandbox; its driver alone changes it.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) record: Arc<Record>,
    /// Set with `Destroyed`: the last words, or why it could not be made. The latter also while
    /// what is left of it is being removed.
    pub(crate) end: Option<Result<Ended, Error>>,
}

/// One sandbox, shared between its driver and its callers.
pub(crate) struct Entry {
    pub(crate) tenant: TenantId,
    pub(crate) id: SandboxId,
    pub(crate) name: String,
    /// The same name, for what is told of this life of the sandbox: another one with its id has
    /// another.
    pub(crate) incarnation: Arc<str>,
    pub(crate) slot: u32,
    pub(crate) directory: PathBuf,
    pub(crate) view: watch::Sender<View>,
    pub(crate) orders: mpsc::Sender<Order>,
    /// The driver's end of `orders`. Here, so that a driver that panicked loses none.
    pub(crate) post: tokio::sync::Mutex<mpsc::Receiver<Order>>,
    pub(crate) sessions: Sessions,
    pub(crate) pool: Arc<Pool>,
    pub(crate) scopes: Scopes,
    /// Ports of which was last told that they listen.
    pub(crate) listened: Mutex<BTreeSet<u16>>,
    /// What runs by itself, as was last told.
    pub(crate) background: Background,
    /// Places for connections to its ports.
    pub(crate) ports: Arc<Semaphore>,
    pub(crate) uses: Arc<Uses>,
    /// What shells of its sessions held.
    pub(crate) kept: Kept,
    /// What terminals of its sessions have shown.
    pub(crate) recordings: Recordings,
    /// What was started in it in the background.
    pub(crate) notes: Notes,
    /// What a sleep has lost and nobody was told yet.
    pub(crate) lost: Mutex<Option<Vec<Lost>>>,
    /// What it was refused.
    pub(crate) refusals: Refusals,
    /// Its link, if it has one.
    pub(crate) link: Mutex<Option<Linked>>,
    /// What is lent to it.
    pub(crate) vault: Vault,
}

impl Entry {
    pub(crate) fn new(
        record: Record,
        sandboxes: &std::path::Path,
        sessions: Vec<(SessionId, String)>,
        watch: &Arc<Watched>,
    ) -> Arc<Self> {
        let (orders, post) = mpsc::channel(ORDERS_MAX);
        Arc::new(Self {
            tenant: record.tenant.clone(),
            id: record.id.clone(),
            name: record.name.clone(),
            incarnation: Arc::from(record.name.as_str()),
            slot: record.slot,
            directory: sandboxes.join(&record.name),
            orders,
            post: tokio::sync::Mutex::new(post),
            sessions: Sessions::new(
                &record.id,
                (record.body.created_at_ms, record.body.home()),
                sessions,
            ),
            pool: Arc::new(Pool::new(Arc::clone(watch))),
            scopes: Scopes::default(),
            listened: Mutex::default(),
            background: Background::default(),
            ports: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            uses: Uses::new(),
            kept: Kept::new(&sandboxes.join(&record.name)),
            recordings: Recordings::new(&sandboxes.join(&record.name)),
            notes: Notes::new(&sandboxes.join(&record.name)),
            lost: Mutex::new(record.body.lost.clone()),
            refusals: Refusals::default(),
            link: Mutex::default(),
            vault: Vault::new(sandboxes.parent().unwrap_or(sandboxes), &record.name),
            view: watch::Sender::new(View { record: Arc::new(record), end: None }),
        })
    }

    pub(crate) fn view(&self) -> View {
        self.view.borrow().clone()
    }

    pub(crate) fn state(&self) -> State {
        self.view.borrow().record.state
    }

    /// Why nothing can be done in it any more, once its end is decided.
    pub(crate) fn destroyed(&self) -> Option<LinkError> {
        (!self.state().visible()).then(|| LinkError::Destroyed(self.id.clone()))
    }

    pub(crate) fn lost(&self) -> MutexGuard<'_, Option<Vec<Lost>>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Option<Linked>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is made, or it is known why it is not.
    pub(crate) async fn made(&self) -> View {
        let mut seen = self.view.subscribe();
        let made = |view: &View| {
            view.end.is_some() || !matches!(view.record.state, State::Creating | State::Destroying)
        };
        let view = seen.wait_for(made).await.map(|view| view.clone());
        view.unwrap_or_else(|_| self.view())
    }

    /// Waits while it is being made or removed.
    pub(crate) async fn settled(&self) -> View {
        let mut seen = self.view.subscribe();
        let settled =
            |view: &View| !matches!(view.record.state, State::Creating | State::Destroying);
        // The sender lives in this entry: the wait cannot fail.
        let view = seen.wait_for(settled).await.map(|view| view.clone());
        view.unwrap_or_else(|_| self.view())
    }
}

/// All entries and uid ranges.
pub(crate) struct Registry {
    map: Mutex<Map>,
}

struct Map {
    tenants: BTreeMap<TenantId, BTreeMap<SandboxId, Arc<Entry>>>,
    /// Ranges never used come first, then those given back longest ago.
    next_slot: u32,
    free_slots: VecDeque<u32>,
}

/// Who asked for a new sandbox got one, or the one that has its id.
pub(crate) enum Reserved {
    New(Arc<Entry>),
    Existing(Arc<Entry>),
}

impl Registry {
    /// `used`: ranges that records hold.
    pub(crate) fn new(used: &[u32]) -> Self {
        let next_slot =
            used.iter().max().map_or(0, |slot| slot.saturating_add(1)).min(isolet_jail::SLOTS);
        let free_slots = {
            let used: HashSet<u32> = used.iter().copied().collect();
            (0..next_slot).filter(|slot| !used.contains(slot)).collect()
        };
        Self { map: Mutex::new(Map { tenants: BTreeMap::new(), next_slot, free_slots }) }
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, tenant: &TenantId, id: &SandboxId) -> Option<Arc<Entry>> {
        self.lock().tenants.get(tenant)?.get(id).cloned()
    }

    /// By the server's own name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Entry>> {
        let map = self.lock();
        let mut all = map.tenants.values().flat_map(BTreeMap::values);
        all.find(|entry| entry.name == name).cloned()
    }

    /// A uid range for a sandbox that has no entry yet.
    pub(crate) fn take_slot(&self) -> Option<u32> {
        self.lock().slot()
    }

    /// Frees the range of one that never had an entry.
    pub(crate) fn give_slot(&self, slot: u32) {
        self.lock().free_slots.push_back(slot);
    }

    /// Takes the id, a place within the tenant's limit and a uid range in one step. Name and range
    /// are those of `made` where there is one, which is then taken.
    pub(crate) fn reserve(
        &self,
        (tenant, id): (&TenantId, &SandboxId),
        max: u32,
        body: Body,
        made: &mut Option<Made>,
        make: impl FnOnce(Record) -> Arc<Entry>,
    ) -> Result<Reserved, Error> {
        let mut map = self.lock();
        let count = match map.tenants.get(tenant) {
            Some(own) => match own.get(id) {
                Some(entry) => return Ok(Reserved::Existing(Arc::clone(entry))),
                None => own.len(),
            },
            None => 0,
        };
        if count >= max as usize {
            return Err(Error::TooManySandboxes { max });
        }
        let (name, slot) = match made.take() {
            Some(made) => (made.name, made.slot),
            None => {
                let slot = map.slot().ok_or(Error::ServerFull("no uid range is free"))?;
                (crate::ids::random(), slot)
            }
        };
        let state = State::Creating;
        let entry =
            make(Record { name, tenant: tenant.clone(), id: id.clone(), slot, state, body });
        map.tenants.entry(tenant.clone()).or_default().insert(id.clone(), Arc::clone(&entry));
        Ok(Reserved::New(entry))
    }

    /// Puts back what recovery found.
    pub(crate) fn insert(&self, entry: &Arc<Entry>) {
        self.lock()
            .tenants
            .entry(entry.tenant.clone())
            .or_default()
            .insert(entry.id.clone(), Arc::clone(entry));
    }

    /// Frees the id, the place and the range of one that is gone.
    pub(crate) fn remove(&self, entry: &Entry) {
        let mut map = self.lock();
        let Some(own) = map.tenants.get_mut(&entry.tenant) else { return };
        if own.get(&entry.id).is_some_and(|found| found.name == entry.name) {
            own.remove(&entry.id);
            if own.is_empty() {
                map.tenants.remove(&entry.tenant);
            }
            map.free_slots.push_back(entry.slot);
        }
    }

    /// One page of a tenant's sandboxes.
    pub(crate) fn list(&self, tenant: &TenantId, after: Option<&SandboxId>, limit: usize) -> Page {
        let map = self.lock();
        let Some(own) = map.tenants.get(tenant) else {
            return Page { items: Vec::new(), next: None };
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let visible = own
            .range::<SandboxId, _>((from, Bound::Unbounded))
            .filter(|(_, entry)| entry.state().visible());
        let mut items: Vec<Info> =
            visible.take(limit + 1).map(|(_, entry)| entry.view.borrow().record.info()).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        Page { next: items.last().filter(|_| more).map(|info| info.id.clone()), items }
    }

    /// All of one tenant, sorted by id.
    pub(crate) fn of(&self, tenant: &TenantId) -> Vec<Arc<Entry>> {
        let map = self.lock();
        let own = map.tenants.get(tenant).into_iter().flat_map(BTreeMap::values);
        own.filter(|entry| entry.state().visible()).cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.lock().tenants.values().flat_map(|own| own.values().cloned()).collect()
    }

    pub(crate) fn clear(&self) {
        self.lock().tenants.clear();
    }
}

impl Map {
    fn slot(&mut self) -> Option<u32> {
        if self.next_slot < isolet_jail::SLOTS {
            self.next_slot += 1;
            return Some(self.next_slot - 1);
        }
        self.free_slots.pop_front()
    }
}
