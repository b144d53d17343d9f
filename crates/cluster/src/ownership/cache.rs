//! The owners of sandboxes that this node has recently forwarded requests to.

use crate::model::Epoch;
use crate::model::Owner;
use crate::model::SandboxKey;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// Maximum number of cached owners: about 20 MiB. The one that was used least recently is dropped.
pub const OWNERS_CACHED_MAX: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

/// A bounded cache. An owner stays until a newer one is learned or it is forgotten.
pub(super) struct OwnerCache {
    owners: Mutex<LruCache<SandboxKey, Owner>>,
    /// Of etcd's history, from which the owners are.
    generation: AtomicU64,
}

impl OwnerCache {
    pub(super) fn new(limit: NonZeroUsize) -> Self {
        // The cache grows as it is filled; `new` would allocate all of it.
        let mut owners = LruCache::unbounded();
        owners.resize(limit);
        Self { owners: Mutex::new(owners), generation: AtomicU64::new(0) }
    }

    /// Drops all owners if etcd has gone back in time since they were learned.
    pub(super) fn follow(&self, generation: u64) {
        if self.generation.swap(generation, Ordering::Relaxed) != generation {
            self.clear();
        }
    }

    pub(super) fn get(&self, sandbox: &SandboxKey) -> Option<Owner> {
        self.lock().get(sandbox).cloned()
    }

    /// Remembers an owner, unless a newer one is known: answers may overtake each other. One of a
    /// sandbox that was stored away is not remembered, because any node may take it over.
    pub(super) fn learn(&self, sandbox: &SandboxKey, owner: &Owner) {
        if owner.is_stored() {
            return self.forget(sandbox, owner.epoch);
        }
        let mut owners = self.lock();
        if owners.peek(sandbox).is_none_or(|known| known.epoch < owner.epoch) {
            owners.put(sandbox.clone(), owner.clone());
        }
    }

    /// Drops the owner of this epoch or of an earlier one.
    pub(super) fn forget(&self, sandbox: &SandboxKey, epoch: Epoch) {
        let mut owners = self.lock();
        if owners.peek(sandbox).is_some_and(|known| known.epoch <= epoch) {
            owners.pop(sandbox);
        }
    }

    /// Drops any owner.
    pub(super) fn remove(&self, sandbox: &SandboxKey) {
        self.lock().pop(sandbox);
    }

    /// Drops all owners.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<SandboxKey, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Class;
    use isolet_wire::node::NodeName;

    fn owner(epoch: i64) -> Owner {
        Owner {
            node: NodeName::parse("a").unwrap(),
            epoch: Epoch::of_revision(epoch),
            class: Class::Node,
            region: "eu".into(),
            reason: String::new(),
            custody: crate::model::Custody::Held,
            destination: None,
            ends_at_ms: None,
            claim: 0,
        }
    }

    #[test]
    fn the_cache_keeps_the_newest_owner_and_its_limit() {
        let cache = OwnerCache::new(NonZeroUsize::new(2).unwrap());
        let key = |id: &str| SandboxKey::new("t", id).unwrap();
        let of = Epoch::of_revision;
        cache.learn(&key("a"), &owner(5));
        cache.learn(&key("a"), &owner(4));
        assert_eq!(cache.get(&key("a")).unwrap().epoch, of(5));
        cache.forget(&key("a"), of(4));
        assert!(cache.get(&key("a")).is_some(), "a newer owner than the one that refused");
        cache.learn(&key("b"), &owner(1));
        assert!(cache.get(&key("a")).is_some());
        cache.learn(&key("c"), &owner(1));
        assert_eq!(cache.get(&key("b")), None, "the one that was used least recently");
        cache.forget(&key("a"), of(5));
        assert_eq!(cache.get(&key("a")), None);
    }
}
