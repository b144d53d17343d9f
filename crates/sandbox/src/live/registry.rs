//! Every sandbox of this server, by tenant and id. The first call that names a missing one creates
//! it.

use crate::{
    live::{entry::Entry, prepared::Made},
    model::{
        error::Error,
        ids::{SandboxId, TenantId},
        info::{Info, Page},
        record::{Body, Record},
        state::State,
    },
};
use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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
                (crate::model::ids::random(), slot)
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
