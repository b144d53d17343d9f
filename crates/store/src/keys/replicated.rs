//! Keys as the nodes of a fleet exchange them: with their digest, without secret and last use.
//!
//! The keys of two nodes are merged by union. A key that either of them has revoked is revoked, so
//! that no order of merges brings a revoked key back.

use super::{COLUMNS, ENDED_KEPT_MS, Key, KeyDigest, Keys, KnownKeys, Writer};
use crate::error::Error;
use crate::schema::NEXT_CHANGE;
use crate::tombstones::Removal;
use isolet_clock::now_ms;
use rusqlite::params;

/// A key, as nodes exchange it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The id: `key_…`.
    pub id: String,
    /// The digest of its secret.
    pub digest: KeyDigest,
    /// The tenant whose sandboxes it gives access to.
    pub tenant: String,
    /// The owner's name for it.
    pub label: String,
    /// Whether it allows only calls that read.
    pub read_only: bool,
    /// In ms since 1970.
    pub created_at_ms: i64,
    /// When it expires, in ms since 1970; `None`: never.
    pub expires_at_ms: Option<i64>,
    /// When it was revoked, in ms since 1970.
    pub revoked_at_ms: Option<i64>,
}

/// What a merge has changed. Contains ids of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergedKeys {
    /// The number of keys that were unknown.
    pub added: usize,
    /// Keys that were valid and are revoked now.
    pub revoked: Vec<String>,
    /// Keys whose id or secret is that of a different key. They were not added.
    pub conflicting: Vec<String>,
}

/// Keys of a batch that need a write.
#[derive(Default)]
struct Changes<'a> {
    added: Vec<&'a KeyRecord>,
    /// Ids of keys in the records, and when they were revoked.
    revoked: Vec<(String, i64)>,
    conflicting: Vec<String>,
}

impl Keys {
    /// A number that changes whenever a key is added or revoked, by any process.
    ///
    /// # Errors
    /// [`Error`].
    pub fn generation(&self) -> Result<u64, Error> {
        self.refresh()?;
        Ok(self.known().generation)
    }

    /// All keys with their digests, including revoked and expired ones, the oldest first.
    ///
    /// # Errors
    /// [`Error`].
    pub fn records(&self) -> Result<Vec<KeyRecord>, Error> {
        self.refresh()?;
        let record = |digest: &KeyDigest, key: &Key| KeyRecord {
            id: key.id.clone(),
            digest: *digest,
            tenant: key.tenant.clone(),
            label: key.label.clone(),
            read_only: key.read_only,
            created_at_ms: key.created_at_ms,
            expires_at_ms: key.expires_at_ms,
            revoked_at_ms: key.revoked_at_ms,
        };
        let known = self.known();
        let mut all: Vec<KeyRecord> =
            known.iter().map(|(digest, one)| record(digest, one.stored())).collect();
        drop(known);
        all.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        Ok(all)
    }

    /// Merges keys of other nodes into the records. Revocations are written first, and also on a full
    /// disk. Blocks.
    ///
    /// # Errors
    /// [`Error`]. Some of the keys may have been merged; merge them again.
    pub fn merge(&self, others: &[KeyRecord]) -> Result<MergedKeys, Error> {
        let mut writer = self.writer();
        self.refresh()?;
        let changes = compare(&self.known(), others);
        let mut merged = MergedKeys { conflicting: changes.conflicting, ..Default::default() };
        for (id, at_ms) in changes.revoked {
            writer.write_revocation(&id, at_ms)?;
            self.known_mut().revoke(&id, at_ms);
            merged.revoked.push(id);
        }
        let inserted = writer.insert(&changes.added);
        self.refresh()?;
        merged.added = inserted?;
        Ok(merged)
    }
}

/// Compares keys of other nodes with those that are known.
fn compare<'a>(known: &KnownKeys, others: &'a [KeyRecord]) -> Changes<'a> {
    let forgotten_ms = now_ms().saturating_sub(ENDED_KEPT_MS);
    let mut changes = Changes::default();
    for other in others {
        let own = known.digest_of(&other.id).copied();
        let is_known = own == Some(other.digest);
        let conflicts = !is_known && (own.is_some() || known.get(&other.digest).is_some());
        let is_forgotten = other.expires_at_ms.is_some_and(|at| at < forgotten_ms);
        if conflicts {
            changes.conflicting.push(other.id.clone());
        } else if !is_known && !is_forgotten {
            changes.added.push(other);
        }
        let Some(at_ms) = other.revoked_at_ms else { continue };
        // The id was revoked, and so was the secret, whatever id it has here.
        for digest in [own.as_ref(), Some(&other.digest)].into_iter().flatten() {
            let key = known.get(digest).map(|one| one.stored());
            if let Some(key) = key.filter(|key| key.revoked_at_ms.is_none()) {
                changes.revoked.push((key.id.clone(), at_ms));
            }
        }
    }
    changes.revoked.sort();
    changes.revoked.dedup_by(|later, first| later.0 == first.0);
    changes
}

impl Writer {
    /// Revokes a key in SQLite, or with a tombstone on a full disk.
    fn write_revocation(&mut self, id: &str, at_ms: i64) -> Result<(), Error> {
        let written = self.apply_pending().and_then(|()| {
            let mut update = self.connection.prepare_cached(&format!(
                "UPDATE keys SET revoked_ms = ?2, changed = {NEXT_CHANGE} \
                 WHERE id = ?1 AND revoked_ms IS NULL"
            ))?;
            Ok(update.execute(params![id, at_ms]).map(drop)?)
        });
        match written {
            Err(Error::Full) => self.add_tombstone(Removal::Key { id: id.to_owned() }),
            written => written,
        }
    }

    /// Adds keys; returns how many.
    fn insert(&mut self, keys: &[&KeyRecord]) -> Result<usize, Error> {
        if keys.is_empty() {
            return Ok(0);
        }
        self.apply_pending()?;
        let transaction = self.connection.transaction()?;
        for key in keys {
            // The same key may stand in the batch twice, or have been added by another process.
            transaction
                .prepare_cached(&format!(
                    "INSERT INTO keys ({COLUMNS}, changed) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, {NEXT_CHANGE}) \
                     ON CONFLICT (id) DO UPDATE \
                     SET revoked_ms = coalesce(revoked_ms, excluded.revoked_ms), \
                         changed = excluded.changed \
                     ON CONFLICT DO NOTHING"
                ))?
                .execute(params![
                    key.digest.bytes(),
                    key.id,
                    key.tenant,
                    key.label,
                    key.read_only,
                    key.created_at_ms,
                    key.expires_at_ms,
                    key.revoked_at_ms
                ])?;
        }
        transaction.commit()?;
        Ok(keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::NewKey;
    use crate::tombstones::{KEY_RESERVE, Tombstones};
    use proptest::prelude::*;
    use tempfile::TempDir;

    fn open() -> (TempDir, Keys) {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::open(&folder.path().join("isolet.db")).unwrap();
        (folder, keys)
    }

    fn add(keys: &Keys, label: &str) -> (String, KeyDigest) {
        let new = NewKey { tenant: "t".into(), label: label.into(), ..NewKey::default() };
        let (key, secret) = keys.add(&new).unwrap();
        (key.id, KeyDigest::of(&secret))
    }

    fn opens(keys: &Keys, digest: &KeyDigest) -> bool {
        keys.grant_of(digest).unwrap().is_some()
    }

    /// Promises: FW8.
    #[test]
    fn a_merge_is_a_union_in_which_revocation_wins() {
        let (_a, a) = open();
        let (_b, b) = open();
        let new = NewKey {
            tenant: "acme".into(),
            label: "ci".into(),
            read_only: true,
            expires_at_ms: Some(i64::MAX),
            ..NewKey::default()
        };
        let (limited, secret) = a.add(&new).unwrap();
        let (other, other_digest) = add(&b, "of b");
        let before = b.generation().unwrap();
        assert_eq!(b.merge(&a.records().unwrap()).unwrap().added, 1);
        assert_ne!(b.generation().unwrap(), before);
        a.merge(&b.records().unwrap()).unwrap();
        assert_eq!(a.records().unwrap(), b.records().unwrap());
        let grant = b.grant_of(&KeyDigest::of(&secret)).unwrap().unwrap();
        assert_eq!((grant.tenant.as_str(), grant.read_only), ("acme", true));
        assert!(opens(&a, &other_digest));
        // What was sent before the revocation arrives after it.
        let early = a.records().unwrap();
        assert!(a.revoke(&limited.id).unwrap());
        let merged = b.merge(&a.records().unwrap()).unwrap();
        assert_eq!(merged.revoked, std::slice::from_ref(&limited.id));
        b.merge(&early).unwrap();
        a.merge(&early).unwrap();
        for keys in [&a, &b] {
            assert!(!opens(keys, &KeyDigest::of(&secret)), "it stays revoked");
            assert!(keys.is_valid(&other).unwrap());
        }
        assert_eq!(a.records().unwrap(), b.records().unwrap());
    }

    #[test]
    fn a_use_is_no_change() {
        let (_a, a) = open();
        let (_, digest) = add(&a, "");
        let before = a.generation().unwrap();
        assert!(opens(&a, &digest));
        let same = a.merge(&a.records().unwrap()).unwrap();
        assert_eq!((same, a.generation().unwrap()), (MergedKeys::default(), before));
        assert!(a.list().unwrap()[0].last_used_at_ms.is_some(), "the use stays");
    }

    #[test]
    fn an_id_or_secret_of_another_key_is_not_added_but_its_revocation_counts() {
        let (_a, a) = open();
        let (id, digest) = add(&a, "");
        let own = a.records().unwrap().remove(0);
        let foreign = KeyDigest::of("isolet_other");
        let same_id = KeyRecord { digest: foreign, ..own.clone() };
        let same_secret = KeyRecord { id: "key_other".into(), ..own.clone() };
        let merged = a.merge(&[same_id, same_secret.clone()]).unwrap();
        assert_eq!(merged.conflicting, [id.clone(), "key_other".into()]);
        assert!(!opens(&a, &foreign) && opens(&a, &digest));
        let revoked = KeyRecord { revoked_at_ms: Some(7), ..same_secret };
        assert_eq!(a.merge(&[revoked]).unwrap().revoked, [id]);
        assert!(!opens(&a, &digest), "the secret was revoked under another id");
    }

    #[test]
    fn a_key_that_stands_in_a_batch_twice_is_revoked_if_one_of_them_is() {
        let (_a, a) = open();
        let (_b, b) = open();
        let (id, digest) = add(&a, "");
        let valid = a.records().unwrap().remove(0);
        let revoked = KeyRecord { revoked_at_ms: Some(7), ..valid.clone() };
        for batch in [[valid.clone(), revoked.clone()], [revoked, valid]] {
            b.merge(&batch).unwrap();
            assert!(!opens(&b, &digest), "{id}");
        }
        assert_eq!(b.list().unwrap()[0].revoked_at_ms, Some(7));
    }

    /// A tombstone of another process is respected, and exchanged like any revocation.
    #[test]
    fn a_revocation_on_a_full_disk_is_a_revocation_for_other_nodes() {
        let (folder, a) = open();
        let (id, _) = add(&a, "");
        let before = a.generation().unwrap();
        let mut others = Tombstones::open(&folder.path().join("isolet.db"), KEY_RESERVE).unwrap();
        others.add(Removal::Key { id }).unwrap();
        a.reload();
        assert_ne!(a.generation().unwrap(), before);
        assert!(a.records().unwrap()[0].revoked_at_ms.is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Whatever is merged in whatever order, nodes that have seen the same are equal.
        #[test]
        fn nodes_that_have_merged_the_same_are_equal(
            steps in proptest::collection::vec((0..3usize, 0..3usize, 0..3u8), 1..30),
        ) {
            let nodes = [open(), open(), open()];
            let keys: Vec<&Keys> = nodes.iter().map(|(_, keys)| keys).collect();
            let mut revoked = Vec::new();
            for (one, other, action) in steps {
                match action {
                    0 => drop(add(keys[one], "")),
                    1 => {
                        let valid = keys[one].list().unwrap().into_iter()
                            .find(|key| key.revoked_at_ms.is_none());
                        if let Some(key) = valid {
                            keys[one].revoke(&key.id).unwrap();
                            revoked.push(key.id);
                        }
                    }
                    _ => drop(keys[other].merge(&keys[one].records().unwrap()).unwrap()),
                }
            }
            for _ in 0..2 {
                for (one, other) in [(0, 1), (1, 2), (2, 0)] {
                    keys[other].merge(&keys[one].records().unwrap()).unwrap();
                }
            }
            let state = |keys: &Keys| -> Vec<(String, bool)> {
                keys.records().unwrap().into_iter()
                    .map(|key| (key.id, key.revoked_at_ms.is_some()))
                    .collect()
            };
            let first = state(keys[0]);
            prop_assert_eq!(&first, &state(keys[1]));
            prop_assert_eq!(&first, &state(keys[2]));
            for id in revoked {
                prop_assert!(first.contains(&(id, true)));
            }
        }
    }
}
