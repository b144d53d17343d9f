//! All sandboxes of this server, by tenant and id. The first call that names a new id creates its
//! sandbox.

mod creating;

use crate::live::entry::SandboxEntry;
use crate::live::prepared::PreparedSandbox;
use crate::model::error::Error;
use crate::model::ids::{OwnedId, SandboxId, TenantId};
use crate::model::info::{Page, SandboxInfo};
use crate::model::record::{Record, RecordBody};
use crate::model::state::State;
use creating::CreatingCalls;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Maximum number of removals that wait for a reader. A reader that is further behind gets an error.
const REMOVALS_MAX: usize = 1024;

/// Maximum number of remembered departures. When there are more, all are forgotten; requests that are
/// still on their way to them are minutes late. Held ids do not count: they must not be forgotten.
pub(crate) const DEPARTED_MAX: usize = 10_000;

/// All entries and uid ranges.
pub(crate) struct Registry {
    map: Mutex<Map>,
    removals: broadcast::Sender<Arc<OwnedId>>,
    creating: CreatingCalls,
}

struct Map {
    /// Sandboxes that have left this node and live on elsewhere. A request that was on its way to one
    /// must not create an empty one with its id.
    departed: HashSet<OwnedId>,
    /// Ids of which this node had no sandbox when the server started, although it owned them. One can be
    /// restored at any time later, so none is forgotten before it returns. There are at most as many as the
    /// node owned then.
    held: HashSet<OwnedId>,
    tenants: BTreeMap<TenantId, BTreeMap<SandboxId, Arc<SandboxEntry>>>,
    /// Unused ranges are assigned first, then those that were freed longest ago.
    next_slot: u32,
    free_slots: VecDeque<u32>,
}

impl Map {
    fn leaves(&mut self, id: OwnedId) {
        if self.departed.len() >= DEPARTED_MAX {
            self.departed.clear();
        }
        self.departed.insert(id);
    }

    fn has_departed(&self, id: &OwnedId) -> bool {
        self.departed.contains(id) || self.held.contains(id)
    }
}

/// Why no sandbox may be created with an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// One has left this node.
    Departed,
    /// This node owned the id when the server started, and had no sandbox with it.
    Held,
}

/// The result of a reservation: a new entry, or the existing one with the id.
pub(crate) enum Reserved {
    New(Arc<SandboxEntry>),
    Existing(Arc<SandboxEntry>),
}

impl Registry {
    /// `used` are the ranges in the records.
    pub(crate) fn new(used: &[u32]) -> Self {
        let next_slot =
            used.iter().max().map_or(0, |slot| slot.saturating_add(1)).min(isolet_jail::SLOTS);
        let free_slots = {
            let used: HashSet<u32> = used.iter().copied().collect();
            (0..next_slot).filter(|slot| !used.contains(slot)).collect()
        };
        let map = Mutex::new(Map {
            departed: HashSet::new(),
            held: HashSet::new(),
            tenants: BTreeMap::new(),
            next_slot,
            free_slots,
        });
        let removals = broadcast::Sender::new(REMOVALS_MAX);
        Self { map, removals, creating: CreatingCalls::default() }
    }

    /// Reports each sandbox that is removed from now on, and each that was not created.
    pub(crate) fn removals(&self) -> broadcast::Receiver<Arc<OwnedId>> {
        self.removals.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, tenant: &TenantId, id: &SandboxId) -> Option<Arc<SandboxEntry>> {
        self.lock().tenants.get(tenant)?.get(id).cloned()
    }

    /// The tenants that have a sandbox with this id.
    pub(crate) fn owners(&self, id: &SandboxId) -> Vec<TenantId> {
        let map = self.lock();
        let owners = map.tenants.iter().filter(|(_, own)| own.contains_key(id));
        owners.map(|(tenant, _)| tenant.clone()).collect()
    }

    /// Finds a sandbox by its internal name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<SandboxEntry>> {
        let map = self.lock();
        let mut all = map.tenants.values().flat_map(BTreeMap::values);
        all.find(|entry| entry.name == name).cloned()
    }

    /// Takes a uid range for a sandbox without an entry.
    pub(crate) fn take_slot(&self) -> Option<u32> {
        self.lock().slot()
    }

    /// Frees the range of a sandbox that never had an entry.
    pub(crate) fn give_slot(&self, slot: u32) {
        self.lock().free_slots.push_back(slot);
    }

    /// Reserves the id, a place within the tenant's limit and a uid range in one step. With `made`,
    /// its name, range and ids on disk are used, and it is consumed.
    pub(crate) fn reserve(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        max: u32,
        mut body: RecordBody,
        made: &mut Option<PreparedSandbox>,
        make: impl FnOnce(Record) -> Arc<SandboxEntry>,
    ) -> Result<Reserved, Error> {
        let mut map = self.lock();
        if map.has_departed(&OwnedId { tenant: tenant.clone(), id: id.clone() }) {
            return Err(Error::Departed(id.clone()));
        }
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
            Some(made) => {
                body.id_base = made.id_base;
                (made.name, made.slot)
            }
            None => {
                let slot = map.slot().ok_or(Error::ServerFull("no uid range is free"))?;
                (crate::model::ids::random(), slot)
            }
        };
        let state = State::Creating;
        let entry = make(Record {
            name,
            tenant: tenant.clone(),
            id: id.clone(),
            slot,
            state,
            agent_version: None,
            body,
        });
        map.tenants.entry(tenant.clone()).or_default().insert(id.clone(), Arc::clone(&entry));
        Ok(Reserved::New(entry))
    }

    /// Adds a sandbox that recovery found.
    pub(crate) fn insert(&self, entry: &Arc<SandboxEntry>) {
        self.lock()
            .tenants
            .entry(entry.tenant.clone())
            .or_default()
            .insert(entry.id.clone(), Arc::clone(entry));
    }

    /// Frees the id, the place and the range of a deleted sandbox.
    pub(crate) fn remove(&self, entry: &SandboxEntry) {
        let mut map = self.lock();
        let Some(own) = map.tenants.get_mut(&entry.tenant) else { return };
        if own.get(&entry.id).is_some_and(|found| found.name == entry.name) {
            own.remove(&entry.id);
            if own.is_empty() {
                map.tenants.remove(&entry.tenant);
            }
            map.free_slots.push_back(entry.slot);
            let removed = OwnedId { tenant: entry.tenant.clone(), id: entry.id.clone() };
            if entry.lives_on() {
                map.leaves(removed.clone());
            }
            drop(map);
            self.report_removal(Arc::new(removed));
        }
    }

    /// A sandbox with this id may be created. Returns why none could be.
    pub(crate) fn returns(&self, tenant: &TenantId, id: &SandboxId) -> Option<Absence> {
        let id = OwnedId { tenant: tenant.clone(), id: id.clone() };
        let mut map = self.lock();
        let has_departed = map.departed.remove(&id);
        match map.held.remove(&id) {
            true => Some(Absence::Held),
            false => has_departed.then_some(Absence::Departed),
        }
    }

    /// None may be created with this id.
    pub(crate) fn leaves(&self, tenant: &TenantId, id: &SandboxId, absence: Absence) {
        let id = OwnedId { tenant: tenant.clone(), id: id.clone() };
        let mut map = self.lock();
        match absence {
            Absence::Departed => map.leaves(id),
            Absence::Held => drop(map.held.insert(id)),
        }
    }

    /// Whether a sandbox with this id has left this node, or its id is held, and none has returned.
    pub(crate) fn has_departed(&self, tenant: &TenantId, id: &SandboxId) -> bool {
        self.lock().has_departed(&OwnedId { tenant: tenant.clone(), id: id.clone() })
    }

    /// Why there is no sandbox with this id.
    pub(crate) fn absence(&self, tenant: &TenantId, id: &SandboxId) -> Error {
        let map = self.lock();
        let found = map.tenants.get(tenant).and_then(|own| own.get(id));
        let owned = OwnedId { tenant: tenant.clone(), id: id.clone() };
        match found.is_some_and(|entry| entry.lives_on()) || map.has_departed(&owned) {
            true => Error::Departed(id.clone()),
            false => Error::NoSandbox(id.clone()),
        }
    }

    fn report_removal(&self, removed: Arc<OwnedId>) {
        // Nobody listens on a server that is no node of a fleet.
        let _ = self.removals.send(removed);
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
        let mut items: Vec<SandboxInfo> =
            visible.take(limit + 1).map(|(_, entry)| entry.view.borrow().record.info()).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        Page { next: items.last().filter(|_| more).map(|info| info.id.clone()), items }
    }

    /// All sandboxes of one tenant, sorted by id.
    pub(crate) fn of(&self, tenant: &TenantId) -> Vec<Arc<SandboxEntry>> {
        let map = self.lock();
        let own = map.tenants.get(tenant).into_iter().flat_map(BTreeMap::values);
        own.filter(|entry| entry.state().visible()).cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<SandboxEntry>> {
        self.lock().tenants.values().flat_map(|own| own.values().cloned()).collect()
    }

    /// The internal names of the sandboxes that run.
    pub(crate) fn running_names(&self) -> Vec<String> {
        let map = self.lock();
        let all = map.tenants.values().flat_map(BTreeMap::values);
        all.filter(|one| one.state() == State::Running).map(|one| one.name.clone()).collect()
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
