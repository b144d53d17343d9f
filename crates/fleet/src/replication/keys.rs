//! API keys: `PREFIX/keys/ID` has a record of each key of the fleet, also of revoked ones.
//!
//! Both sides are merged: a key that only one of them has is added to the other, and a key that one
//! of them has revoked is revoked on the other. A record stays in etcd after its key was revoked, so
//! that a node that comes back with the valid key learns of it. Records of keys that have expired
//! long ago are removed, because they open nothing anywhere.

use crate::blocking::blocking;
use crate::replication::error::ReplicationError;
use crate::replication::follow::Replica;
use crate::replication::listed::Pages;
use crate::replication::values;
use isolet_cluster::etcd::Change;
use isolet_cluster::etcd::Compare;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::KeyValue;
use isolet_cluster::etcd::Operation;
use isolet_cluster::etcd::PAGE_KEYS_MAX;
use isolet_cluster::etcd::Transaction;
use isolet_cluster::etcd::WatchBatch;
use isolet_cluster::model::Keys as KeyNames;
use isolet_store::keys::KeyRecord;
use isolet_store::keys::Keys;
use std::collections::{BTreeMap, HashMap};
use tracing::error;
use tracing::info;
use tracing::warn;

/// Maximum number of API keys of a fleet, including revoked ones that have not expired: each node
/// holds all of them in memory, some hundred bytes each.
pub const KEYS_MAX: usize = 10_000;
/// Maximum number of records that a node reads: nodes that add keys at the same time may each count
/// without the others.
const READ_MAX: usize = KEYS_MAX + 1000;
/// Keys that one transaction adds; etcd accepts 128 operations.
const BATCH: usize = 100;
/// How often a node tries to revoke a key while others write it.
const ATTEMPTS: u32 = 5;
/// How long the record of an expired key stays, in ms: longer than clocks of nodes differ.
const EXPIRED_KEPT_MS: i64 = 7 * 86_400_000;

/// The keys of this node and those of the fleet.
pub(super) struct KeyReplica {
    etcd: Etcd,
    names: KeyNames,
    keys: Keys,
    /// What etcd has, by the id of the key; at most [`READ_MAX`].
    known: HashMap<String, KnownKey>,
    /// The generation of this node's keys that was compared with etcd last; `None`: compare again.
    looked: Option<u64>,
    /// Whether the log says that there are too many keys.
    is_full: bool,
}

/// The record of a key in etcd.
#[derive(Debug, Clone, Copy)]
struct KnownKey {
    revision: i64,
    is_revoked: bool,
    expires_at_ms: Option<i64>,
}

/// What this node has to write to etcd.
#[derive(Debug, Default)]
struct Differences {
    added: Vec<KeyRecord>,
    revoked: Vec<KeyRecord>,
    expired: Vec<(String, i64)>,
}

impl KeyReplica {
    pub(super) fn new(etcd: Etcd, names: KeyNames, keys: Keys) -> Self {
        Self { etcd, names, keys, known: HashMap::new(), looked: None, is_full: false }
    }

    /// Remembers what etcd has, and returns what is to be merged into the keys of this node.
    fn note(&mut self, pair: &KeyValue) -> Option<KeyRecord> {
        let shown = String::from_utf8_lossy(&pair.key);
        let Some(id) = self.names.read_api_key(&pair.key) else {
            warn!(key = %shown, "skipped a key in etcd: it does not name an API key");
            return None;
        };
        if self.known.len() >= READ_MAX && !self.known.contains_key(&id) {
            error!(id, READ_MAX, "skipped an API key in etcd: there are too many");
            return None;
        }
        let is_revoked = values::is_revoked(&pair.value);
        let read = values::read_key(&id, &pair.value);
        let expires_at_ms = read.as_ref().ok().and_then(|key| key.expires_at_ms);
        let known = KnownKey { revision: pair.modified_at, is_revoked, expires_at_ms };
        let newest = self.known.entry(id).or_insert(known);
        // The watch reports what this node has written after the write.
        if newest.revision < known.revision {
            *newest = known;
        }
        match read {
            Ok(key) => Some(key),
            Err(reason) => {
                warn!(key = %shown, %reason, is_revoked, "skipped an API key in etcd");
                None
            }
        }
    }

    /// Merges keys of etcd into those of this node.
    async fn merge(&self, pairs: Vec<KeyRecord>) -> Result<(), ReplicationError> {
        if pairs.is_empty() {
            return Ok(());
        }
        let keys = self.keys.clone();
        let merged = blocking(move || keys.merge(&pairs)).await?;
        if merged.added > 0 {
            info!(count = merged.added, "added API keys of other nodes");
        }
        for id in merged.revoked {
            info!(id, "revoked an API key that another node had revoked");
        }
        for id in merged.conflicting {
            error!(id, "an API key of another node has the id or the secret of one of this node");
        }
        Ok(())
    }

    /// Revokes keys whose records this version cannot read, but which were revoked.
    async fn revoke_unread(&self, ids: Vec<String>) -> Result<(), ReplicationError> {
        if ids.is_empty() {
            return Ok(());
        }
        let keys = self.keys.clone();
        let revoke = move || ids.iter().try_for_each(|id| keys.revoke(id).map(drop));
        Ok(blocking(revoke).await?)
    }

    /// Takes what etcd has.
    async fn take(&mut self, pairs: &[KeyValue]) -> Result<(), ReplicationError> {
        let mut read = Vec::with_capacity(pairs.len());
        let mut unread = Vec::new();
        for pair in pairs {
            match self.note(pair) {
                Some(key) => read.push(key),
                None if values::is_revoked(&pair.value) => {
                    unread.extend(self.names.read_api_key(&pair.key));
                }
                None => {}
            }
        }
        self.revoke_unread(unread).await?;
        self.merge(read).await
    }

    fn differences(&self, own: Vec<KeyRecord>, now_ms: i64) -> Differences {
        let mut all = Differences::default();
        for key in own {
            match self.known.get(&key.id) {
                None if key.expires_at_ms.is_none_or(|at| at > now_ms) => all.added.push(key),
                Some(known) if key.revoked_at_ms.is_some() && !known.is_revoked => {
                    all.revoked.push(key);
                }
                _ => {}
            }
        }
        let is_over = |known: &KnownKey| {
            known.expires_at_ms.is_some_and(|at| at.saturating_add(EXPIRED_KEPT_MS) < now_ms)
        };
        let expired = self.known.iter().filter(|(_, known)| is_over(known));
        all.expired = expired.map(|(id, known)| (id.clone(), known.revision)).collect();
        all
    }

    /// Adds keys that etcd lacks.
    async fn add(&mut self, mut keys: Vec<KeyRecord>) -> Result<(), ReplicationError> {
        // A revocation is never left out: another node may still accept the key.
        keys.sort_by_key(|key| key.revoked_at_ms.is_none());
        let revoked = keys.partition_point(|key| key.revoked_at_ms.is_some());
        let left = KEYS_MAX.saturating_sub(self.known.len()).max(revoked);
        if keys.len() > left {
            if !self.is_full {
                error!(
                    left_out = keys.len() - left,
                    KEYS_MAX,
                    "the fleet has the maximum number of API keys, so new keys work on this node \
                     only; give keys an expiry, since expired keys are removed from the count"
                );
            }
            keys.truncate(left);
            self.is_full = true;
        } else {
            self.is_full = false;
        }
        for batch in keys.chunks(BATCH) {
            if self.add_batch(batch).await? {
                continue;
            }
            // Another node has just added one of them.
            for key in batch {
                let found = self.etcd.get(&self.names.api_key(&key.id)).await?;
                match found {
                    Some(pair) => self.take(&[pair]).await?,
                    None => drop(self.add_batch(std::slice::from_ref(key)).await?),
                }
            }
        }
        Ok(())
    }

    /// Adds keys unless etcd has one of them.
    async fn add_batch(&mut self, keys: &[KeyRecord]) -> Result<bool, ReplicationError> {
        let mut transaction = Transaction::default();
        for key in keys {
            let name = self.names.api_key(&key.id);
            transaction.compares.push(Compare::absent(name.clone()));
            transaction.then.push(Operation::put(name, values::of_key(key)));
        }
        let outcome = self.etcd.transaction(transaction).await?;
        if outcome.succeeded {
            for key in keys {
                let known = KnownKey {
                    revision: outcome.revision,
                    is_revoked: key.revoked_at_ms.is_some(),
                    expires_at_ms: key.expires_at_ms,
                };
                self.known.insert(key.id.clone(), known);
            }
        }
        Ok(outcome.succeeded)
    }

    /// Revokes a key in etcd.
    async fn revoke(&mut self, key: &KeyRecord) -> Result<(), ReplicationError> {
        let name = self.names.api_key(&key.id);
        let expires_at_ms = key.expires_at_ms;
        for _ in 0..ATTEMPTS {
            let found = self.etcd.get(&name).await?;
            let (compare, value) = match &found {
                None => (Compare::absent(name.clone()), values::of_key(key)),
                Some(pair) if values::is_revoked(&pair.value) => {
                    let revision = pair.modified_at;
                    let known = KnownKey { revision, is_revoked: true, expires_at_ms };
                    self.known.insert(key.id.clone(), known);
                    return Ok(());
                }
                Some(pair) => (
                    Compare::modified_at(name.clone(), pair.modified_at),
                    values::revoked(&pair.value, key),
                ),
            };
            let then = vec![Operation::put(name.clone(), value)];
            let transaction = Transaction { compares: vec![compare], then, otherwise: Vec::new() };
            let outcome = self.etcd.transaction(transaction).await?;
            if outcome.succeeded {
                let revision = outcome.revision;
                let known = KnownKey { revision, is_revoked: true, expires_at_ms };
                self.known.insert(key.id.clone(), known);
                info!(id = key.id, "revoked an API key for all nodes");
                return Ok(());
            }
        }
        Err(ReplicationError::Contended {
            what: format!("the API key {}", key.id),
            attempts: ATTEMPTS,
        })
    }

    /// Removes the record of a key that has expired long ago.
    async fn remove_expired(&mut self, id: &str, revision: i64) -> Result<(), ReplicationError> {
        let name = self.names.api_key(id);
        let transaction = Transaction {
            compares: vec![Compare::modified_at(name.clone(), revision)],
            then: vec![Operation::Delete { key: name }],
            otherwise: Vec::new(),
        };
        if self.etcd.transaction(transaction).await?.succeeded {
            self.known.remove(id);
        }
        Ok(())
    }
}

impl Replica for KeyReplica {
    const KIND: &'static str = "API keys";

    fn prefix(&self) -> Vec<u8> {
        self.names.api_keys()
    }

    async fn join(&mut self) -> Result<i64, ReplicationError> {
        self.known.clear();
        let etcd = self.etcd.clone();
        let mut pages = Pages::new(&etcd, self.names.api_keys(), PAGE_KEYS_MAX);
        let mut full = None;
        while let Some(page) = pages.next().await? {
            match self.take(&page).await {
                // Its revocations are written, and those of the other pages must be, too.
                Err(error) if error.is_full_disk() => full = Some(error),
                done => done?,
            }
        }
        self.looked = None;
        self.look().await?;
        full.map_or(Ok(pages.revision()), Err)
    }

    async fn apply(&mut self, batch: WatchBatch) -> Result<(), ReplicationError> {
        // Only the last change of a key counts: a batch may write and delete it.
        let mut last = BTreeMap::new();
        for change in batch.changes {
            match change {
                Change::Put(pair) => last.insert(pair.key.clone(), Some(pair)),
                Change::Deleted { key } => last.insert(key, None),
            };
        }
        let mut written = Vec::new();
        for (key, change) in last {
            match change {
                Some(pair) => written.push(pair),
                // If this node still has the key, it adds the record again.
                None => {
                    if let Some(id) = self.names.read_api_key(&key) {
                        self.known.remove(&id);
                    }
                }
            }
        }
        self.take(&written).await?;
        // A record may also have lost its revocation, which this node then writes again.
        self.looked = None;
        Ok(())
    }

    async fn look(&mut self) -> Result<(), ReplicationError> {
        let keys = self.keys.clone();
        let generation = blocking(move || keys.generation()).await?;
        if self.looked == Some(generation) {
            return Ok(());
        }
        let keys = self.keys.clone();
        let own = blocking(move || keys.records()).await?;
        let Differences { added, revoked, expired } = self.differences(own, isolet_clock::now_ms());
        // Keys first, so that a key that replaces another one works before that one ends.
        self.add(added).await?;
        for key in &revoked {
            self.revoke(key).await?;
        }
        for (id, revision) in &expired {
            self.remove_expired(id, *revision).await?;
        }
        self.looked = Some(generation);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_cluster::etcd::EtcdSettings;
    use isolet_store::keys::NewKey;

    fn replica(folder: &tempfile::TempDir) -> KeyReplica {
        // Nothing of this asks etcd.
        let settings = EtcdSettings { endpoints: vec!["http://127.0.0.1:1".into()], tls: None };
        let names = KeyNames::new("isolet").unwrap();
        let keys = Keys::open(&folder.path().join("isolet.db")).unwrap();
        KeyReplica::new(Etcd::new(settings).unwrap(), names, keys)
    }

    fn put(key: &KeyRecord, revision: i64) -> Change {
        let name = KeyNames::new("isolet").unwrap().api_key(&key.id);
        let value = values::of_key(key);
        Change::Put(KeyValue {
            key: name,
            value,
            created_at: revision,
            modified_at: revision,
            lease: 0,
        })
    }

    /// A batch may hold several changes of one key: the last one counts, whatever came before.
    #[tokio::test]
    async fn of_several_changes_of_a_key_in_one_batch_the_last_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let other = replica(&elsewhere).keys;
        let new = NewKey { tenant: "acme".into(), ..NewKey::default() };
        let (key, secret) = other.add(&new).unwrap();
        let valid = other.records().unwrap().remove(0);
        other.revoke(&key.id).unwrap();
        let revoked = other.records().unwrap().remove(0);
        let deleted = || Change::Deleted { key: KeyNames::new("isolet").unwrap().api_key(&key.id) };
        let digest = isolet_store::KeyDigest::of(&secret);
        let mut replica = replica(&folder);
        // Deleted and written again, at the end revoked.
        let changes = vec![put(&valid, 5), deleted(), put(&valid, 7), put(&revoked, 8)];
        replica.apply(WatchBatch { revision: 8, changes }).await.unwrap();
        assert_eq!(replica.known[&key.id].revision, 8);
        assert!(replica.known[&key.id].is_revoked);
        assert_eq!(replica.keys.grant_of(&digest).unwrap(), None);
        // Written and deleted: etcd has none, so this node writes what it has.
        let changes = vec![put(&revoked, 9), deleted()];
        replica.apply(WatchBatch { revision: 10, changes }).await.unwrap();
        assert!(replica.known.is_empty());
        let own = replica.keys.records().unwrap();
        assert!(own[0].revoked_at_ms.is_some(), "a deletion revives no key");
        assert_eq!(replica.differences(own, 0).added.len(), 1);
    }
}
