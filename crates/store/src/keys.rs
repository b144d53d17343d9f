//! API keys, of which only the SHA-256 digest is stored.

mod replicated;

use crate::error::Error;
use crate::key_digest::KeyDigest;
use crate::records::apply;
use crate::schema;
use crate::tombstones::{KEY_RESERVE, Removal, Tombstones};
use isolet_clock::now_ms;
pub use replicated::{KeyRecord, MergedKeys};
use rusqlite::{Connection, OpenFlags, params};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tracing::warn;

/// Maximum length of a label, in bytes.
pub const LABEL_BYTES_MAX: usize = 200;

/// What a key allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The id of the key: `key_…`.
    pub key: String,
    /// The tenant whose sandboxes it gives access to.
    pub tenant: String,
    /// Whether only calls that read are allowed.
    pub read_only: bool,
}

/// A key without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The id by which the key is revoked: `key_…`.
    pub id: String,
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
    /// When a request last used it, in ms since 1970; `None`: never. Other processes see a use after
    /// the server has written it.
    pub last_used_at_ms: Option<i64>,
}

/// A use of a key that is not in the records yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUse {
    pub(crate) id: String,
    pub(crate) at_ms: i64,
}

/// The parameters of a new key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewKey {
    /// The tenant whose sandboxes it will give access to.
    pub tenant: String,
    /// The owner's name for it, of at most [`LABEL_BYTES_MAX`].
    pub label: String,
    /// Whether it allows only calls that read.
    pub read_only: bool,
    /// When it will expire, in ms since 1970; `None`: never.
    pub expires_at_ms: Option<i64>,
    /// How its secret is written.
    pub format: KeyFormat,
}

/// How the secret of a key is written. Every key works for all calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyFormat {
    /// `isolet_` and 64 hexadecimal digits.
    #[default]
    Isolet,
    /// `e2b_` and 40 hexadecimal digits, which E2B's clients check.
    E2b,
}

impl KeyFormat {
    fn random(self) -> String {
        match self {
            Self::Isolet => format!("isolet_{}", random_digits::<32>()),
            Self::E2b => format!("e2b_{}", random_digits::<20>()),
        }
    }
}

impl Key {
    /// Whether it is neither revoked nor expired.
    fn is_valid(&self) -> bool {
        self.revoked_at_ms.is_none() && self.expires_at_ms.is_none_or(|at| at > now_ms())
    }
}

/// The keys of a data directory. Several processes may open it: keys that one adds or revokes are known
/// to the others at their next call. Clones share one connection.
#[derive(Clone)]
pub struct Keys {
    cache: Arc<Mutex<KeyCache>>,
}

/// Counts the keys that are neither revoked nor expired, and migrates nothing. Blocks.
///
/// # Errors
/// [`Error::Sqlite`]; a missing file is an error too.
pub fn count_valid(file: &Path) -> Result<u64, Error> {
    // A read-only connection would leave the files of the write-ahead log behind.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    let count: i64 = connection.query_row(
        "SELECT count(*) FROM keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?1)",
        [now_ms()],
        |row| row.get(0),
    )?;
    Ok(count.unsigned_abs())
}

/// A key, with its last use in the records.
struct CachedKey {
    key: Key,
    recorded_use_ms: Option<i64>,
}

/// A connection to the records, and the keys that it last read.
struct KeyCache {
    connection: Connection,
    /// SQLite's counter of commits by other connections. Once it changes, the keys are read again.
    version: i64,
    /// Changes whenever a key was added or revoked; see [`Keys::generation`].
    generation: u64,
    by_hash: HashMap<KeyDigest, CachedKey>,
    /// The file of the records.
    file: PathBuf,
    /// Keys that were revoked while the disk was full.
    revoked: Tombstones,
    /// Modification time of the file of `revoked` at the last [`Keys::reload`].
    written: Option<SystemTime>,
}

const COLUMNS: &str =
    "hash, id, tenant, label, read_only, created_ms, expires_ms, revoked_ms, used_ms";

impl Keys {
    /// Opens the records, and creates them if they are missing. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(file: &Path) -> Result<Self, Error> {
        let connection = schema::open(file)?;
        let mut cache = KeyCache {
            connection,
            version: -1,
            generation: 0,
            by_hash: HashMap::new(),
            file: file.to_owned(),
            revoked: Tombstones::open(file, KEY_RESERVE)?,
            written: None,
        };
        cache.written = cache.written_now();
        // On a full disk, the tombstones alone revoke these keys.
        if let Err(Error::Unsynced) = cache.apply_pending() {
            return Err(Error::Unsynced);
        }
        Ok(Self { cache: Arc::new(Mutex::new(cache)) })
    }

    /// Creates a key; only this call returns the secret. Blocks.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Bad`] for a label that is too long.
    pub fn add(&self, new: &NewKey) -> Result<(Key, String), Error> {
        if new.label.len() > LABEL_BYTES_MAX || new.tenant.is_empty() {
            return Err(Error::Bad("a key needs a tenant, and a label of at most 200 bytes"));
        }
        let id = format!("key_{}", random_digits::<8>());
        let secret = new.format.random();
        let key = Key {
            id,
            tenant: new.tenant.clone(),
            label: new.label.clone(),
            read_only: new.read_only,
            created_at_ms: now_ms(),
            expires_at_ms: new.expires_at_ms,
            revoked_at_ms: None,
            last_used_at_ms: None,
        };
        let mut cache = self.lock();
        cache.connection.execute(
            &format!(
                "INSERT INTO keys ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL)"
            ),
            params![
                KeyDigest::of(&secret).bytes(),
                key.id,
                key.tenant,
                key.label,
                key.read_only,
                key.created_at_ms,
                key.expires_at_ms
            ],
        )?;
        cache.read()?;
        Ok((key, secret))
    }

    /// All keys, including revoked ones, the oldest first. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list(&self) -> Result<Vec<Key>, Error> {
        let mut cache = self.lock();
        cache.read()?;
        let mut keys: Vec<Key> = cache.by_hash.values().map(|one| one.key.clone()).collect();
        keys.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        Ok(keys)
    }

    /// Revokes a key by its id. Returns `false` if there is no such key, or it is revoked already. Blocks. On
    /// a full disk, a running server notices at its next [`Keys::reload`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn revoke(&self, id: &str) -> Result<bool, Error> {
        let mut cache = self.lock();
        cache.read()?;
        let known = cache.keys().any(|key| key.id == id && key.revoked_at_ms.is_none());
        if !known {
            return Ok(false);
        }
        let removal = Removal::Key { id: id.to_owned() };
        let written = cache.apply_pending().and_then(|()| apply(&cache.connection, &removal));
        match written {
            Err(Error::Full) => cache.revoked.add(removal)?,
            written => written?,
        }
        cache.read()?;
        Ok(true)
    }

    /// Reads which keys another process has revoked on a full disk. Blocks. Callers call this
    /// periodically, not for each request.
    pub fn reload(&self) {
        let mut cache = self.lock();
        let written = cache.written_now();
        if written != cache.written {
            match Tombstones::open(&cache.file, KEY_RESERVE) {
                Ok(revoked) => cache.revoked = revoked,
                // Known keys stay revoked, and the next call tries again.
                Err(error) => {
                    warn!(%error, "cannot read the keys that were revoked on a full disk");
                    return;
                }
            }
            cache.written = written;
            // Forces a new read: the rows in the records are unchanged.
            cache.version = -1;
        }
    }

    /// Returns what the key with this digest allows; `None` if it is unknown, revoked or expired. Takes a
    /// few microseconds, and the same steps for every unknown key. Counts as a use of the key.
    ///
    /// # Errors
    /// [`Error`].
    pub fn grant_of(&self, digest: &KeyDigest) -> Result<Option<Grant>, Error> {
        let mut cache = self.lock();
        cache.reload_if_changed()?;
        let Some(CachedKey { key, .. }) = cache.by_hash.get_mut(digest) else { return Ok(None) };
        if !key.is_valid() {
            return Ok(None);
        }
        key.last_used_at_ms = Some(now_ms());
        Ok(Some(Grant {
            key: key.id.clone(),
            tenant: key.tenant.clone(),
            read_only: key.read_only,
        }))
    }

    /// Whether the key with this id is still valid. For connections that it has opened before.
    ///
    /// # Errors
    /// [`Error`].
    pub fn is_valid(&self, id: &str) -> Result<bool, Error> {
        let mut cache = self.lock();
        cache.reload_if_changed()?;
        Ok(cache.keys().any(|key| key.id == id && key.is_valid()))
    }

    /// The last use of each key that was used since its last use was recorded, for
    /// [`crate::Store::record_key_uses`].
    #[must_use]
    pub fn unrecorded_uses(&self) -> Vec<KeyUse> {
        let cache = self.lock();
        let used =
            cache.by_hash.values().filter(|one| one.key.last_used_at_ms > one.recorded_use_ms);
        let uses = used.filter_map(|one| {
            Some(KeyUse { id: one.key.id.clone(), at_ms: one.key.last_used_at_ms? })
        });
        uses.collect()
    }

    fn lock(&self) -> MutexGuard<'_, KeyCache> {
        // A panic leaves at most outdated keys, which are read again after a change.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyCache {
    /// Writes the revocations that were made on a full disk to the records.
    fn apply_pending(&mut self) -> Result<(), Error> {
        if self.revoked.is_empty() {
            return Ok(());
        }
        for removal in self.revoked.all() {
            apply(&self.connection, removal)?;
        }
        self.revoked.clear()
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_hash.values().map(|one| &one.key)
    }

    fn written_now(&self) -> Option<SystemTime> {
        fs::metadata(self.revoked.path()).and_then(|about| about.modified()).ok()
    }

    fn version(&self) -> Result<i64, Error> {
        Ok(self
            .connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?)
    }

    /// Reads the keys again if another connection has changed the records.
    fn reload_if_changed(&mut self) -> Result<(), Error> {
        if self.version()? == self.version { Ok(()) } else { self.read() }
    }

    fn read(&mut self) -> Result<(), Error> {
        // Read before the rows, so that a commit in between is noticed at the next call.
        let version = self.version()?;
        let mut query = self.connection.prepare_cached(&format!("SELECT {COLUMNS} FROM keys"))?;
        let rows = query.query_map([], |row| {
            let key = Key {
                id: row.get(1)?,
                tenant: row.get(2)?,
                label: row.get(3)?,
                read_only: row.get(4)?,
                created_at_ms: row.get(5)?,
                expires_at_ms: row.get(6)?,
                revoked_at_ms: row.get(7)?,
                last_used_at_ms: row.get(8)?,
            };
            let recorded_use_ms = key.last_used_at_ms;
            Ok((KeyDigest::from_record(row.get(0)?), CachedKey { key, recorded_use_ms }))
        })?;
        let mut by_hash: HashMap<KeyDigest, CachedKey> = rows.filter_map(Result::ok).collect();
        for (digest, CachedKey { key, .. }) in &mut by_hash {
            let known = self.by_hash.get(digest).and_then(|one| one.key.last_used_at_ms);
            key.last_used_at_ms = key.last_used_at_ms.max(known);
        }
        let revoked = &self.revoked;
        for CachedKey { key, .. } in by_hash.values_mut() {
            if key.revoked_at_ms.is_none() && revoked.contains(&Removal::Key { id: key.id.clone() })
            {
                key.revoked_at_ms = Some(now_ms());
            }
        }
        // Keys are neither deleted nor changed otherwise.
        let is_same = by_hash.len() == self.by_hash.len()
            && by_hash.iter().all(|(digest, CachedKey { key, .. })| {
                let known = self.by_hash.get(digest).map(|one| one.key.revoked_at_ms.is_some());
                known == Some(key.revoked_at_ms.is_some())
            });
        if !is_same {
            self.generation += 1;
        }
        self.by_hash = by_hash;
        self.version = version;
        Ok(())
    }
}

/// `N` random bytes as hexadecimal digits.
fn random_digits<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes).expect("random bytes");
    hex::encode(bytes)
}
