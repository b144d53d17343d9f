//! The keys in memory.

use super::{Grant, Key, KeyUse};
use crate::key_digest::KeyDigest;
use crate::tombstones::Removal;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

/// Stands for a use that never was.
const NEVER: i64 = i64::MIN;

/// All keys, by digest and by id.
#[derive(Default)]
pub(super) struct KnownKeys {
    by_digest: HashMap<KeyDigest, KnownKey>,
    digests: HashMap<String, KeyDigest>,
    /// Changes whenever a key is added or revoked; see [`super::Keys::generation`].
    pub(super) generation: u64,
}

/// A key with its last use, which a request notes without a lock of its own.
pub(super) struct KnownKey {
    /// Without its last use.
    key: Key,
    used_ms: AtomicI64,
    recorded_use_ms: AtomicI64,
}

impl KnownKey {
    fn new(key: Key) -> Self {
        let used_ms = key.last_used_at_ms.unwrap_or(NEVER);
        let recorded_use_ms = AtomicI64::new(used_ms);
        Self { key, used_ms: AtomicI64::new(used_ms), recorded_use_ms }
    }

    /// The key with its last use.
    pub(super) fn key(&self) -> Key {
        let used_ms = self.used_ms.load(Ordering::Relaxed);
        let last_used_at_ms = (used_ms != NEVER).then_some(used_ms);
        Key { last_used_at_ms, ..self.key.clone() }
    }

    /// The key; its last use may be older than it is.
    pub(super) fn stored(&self) -> &Key {
        &self.key
    }

    pub(super) fn is_valid(&self) -> bool {
        self.key.is_valid()
    }

    pub(super) fn grant(&self) -> Grant {
        Grant {
            key: self.key.id.clone(),
            tenant: self.key.tenant.clone(),
            read_only: self.key.read_only,
        }
    }

    pub(super) fn note_use(&self, at_ms: i64) {
        self.used_ms.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// The last use, unless it is in the records.
    pub(super) fn unrecorded_use(&self) -> Option<KeyUse> {
        let at_ms = self.used_ms.load(Ordering::Relaxed);
        (at_ms > self.recorded_use_ms.load(Ordering::Relaxed))
            .then(|| KeyUse { id: self.key.id.clone(), at_ms })
    }
}

impl KnownKeys {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&KeyDigest, &KnownKey)> {
        self.by_digest.iter()
    }

    pub(super) fn get(&self, digest: &KeyDigest) -> Option<&KnownKey> {
        self.by_digest.get(digest)
    }

    pub(super) fn digest_of(&self, id: &str) -> Option<&KeyDigest> {
        self.digests.get(id)
    }

    fn by_id(&self, id: &str) -> Option<&KnownKey> {
        self.digests.get(id).and_then(|digest| self.by_digest.get(digest))
    }

    /// Whether there is such a key and it is not revoked.
    pub(super) fn is_open(&self, id: &str) -> bool {
        self.by_id(id).is_some_and(|one| one.key.revoked_at_ms.is_none())
    }

    pub(super) fn is_valid(&self, id: &str) -> bool {
        self.by_id(id).is_some_and(KnownKey::is_valid)
    }

    /// Adds a key, or revokes a known one. Keys do not change otherwise, and a revoked one stays revoked.
    pub(super) fn put(&mut self, digest: KeyDigest, key: Key) {
        match self.by_digest.get_mut(&digest) {
            Some(known) => {
                if known.key.revoked_at_ms.is_none() && key.revoked_at_ms.is_some() {
                    known.key.revoked_at_ms = key.revoked_at_ms;
                    self.generation += 1;
                }
            }
            None => {
                self.digests.insert(key.id.clone(), digest);
                self.by_digest.insert(digest, KnownKey::new(key));
                self.generation += 1;
            }
        }
    }

    pub(super) fn revoke(&mut self, id: &str, at_ms: i64) {
        let known = self.digests.get(id).and_then(|digest| self.by_digest.get_mut(digest));
        if let Some(known) = known.filter(|known| known.key.revoked_at_ms.is_none()) {
            known.key.revoked_at_ms = Some(at_ms);
            self.generation += 1;
        }
    }

    /// Revokes the keys that these tombstones name.
    pub(super) fn revoke_all(&mut self, removals: &[Removal], at_ms: i64) {
        for removal in removals {
            if let Removal::Key { id } = removal {
                self.revoke(id, at_ms);
            }
        }
    }

    pub(super) fn note_recorded(&self, recorded: &KeyUse) {
        if let Some(known) = self.by_id(&recorded.id) {
            known.recorded_use_ms.fetch_max(recorded.at_ms, Ordering::Relaxed);
        }
    }

    /// The ids of keys that expired before this time, or with `revoked` were revoked before it.
    pub(super) fn ended_before(&self, before_ms: i64, revoked: bool) -> Vec<String> {
        let is_before = |at: Option<i64>| at.is_some_and(|at| at < before_ms);
        let ended = self.by_digest.values().map(|one| &one.key).filter(|key| {
            is_before(key.expires_at_ms) || (revoked && is_before(key.revoked_at_ms))
        });
        ended.map(|key| key.id.clone()).collect()
    }

    pub(super) fn remove(&mut self, ids: &[String]) {
        for id in ids {
            if let Some(digest) = self.digests.remove(id) {
                self.by_digest.remove(&digest);
            }
        }
    }
}
