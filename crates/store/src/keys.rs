//! API keys. Only their SHA-256 is stored.

use crate::error::Error;
use crate::key_digest::KeyDigest;
use crate::records::apply;
use crate::schema;
use crate::tombstones::{KEY_RESERVE, Removal, Tombstones};
use isolet_clock::now_ms;
use rusqlite::{Connection, params};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};
use tracing::warn;

/// The longest label, in bytes.
pub const LABEL_BYTES_MAX: usize = 200;

/// What a key allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The key's id.
    pub key: String,
    /// Whose it is.
    pub tenant: String,
    /// Only reading calls.
    pub read_only: bool,
}

/// A key, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// By which it is revoked.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// The owner's word for it.
    pub label: String,
    /// Only reading calls.
    pub read_only: bool,
    /// Milliseconds since 1970.
    pub created_at_ms: i64,
    /// From then on it opens nothing.
    pub expires_at_ms: Option<i64>,
    /// Since then it opens nothing.
    pub revoked_at_ms: Option<i64>,
}

/// A key to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewKey {
    /// Whose it will be.
    pub tenant: String,
    /// The owner's word for it, at most 200 bytes.
    pub label: String,
    /// Only reading calls.
    pub read_only: bool,
    /// Milliseconds since 1970; `None` never.
    pub expires_at_ms: Option<i64>,
}

impl Key {
    /// Neither revoked nor expired.
    fn opens(&self) -> bool {
        self.revoked_at_ms.is_none() && self.expires_at_ms.is_none_or(|at| at > now_ms())
    }
}

/// The keys of a data directory. Works beside a running server, in another process too: a key
/// that was added or revoked counts from the next call on. Clones share one.
#[derive(Clone)]
pub struct Keys {
    held: Arc<Mutex<KeyCache>>,
}

/// A connection of its own, and what it last read.
struct KeyCache {
    connection: Connection,
    /// SQLite's counter of other connections' commits; another value: read again.
    version: i64,
    by_hash: HashMap<KeyDigest, Key>,
    /// The records.
    file: PathBuf,
    /// Keys that were revoked while the disk was full.
    revoked: Tombstones,
    /// When the file of `revoked` was last changed, as of the last [look](Keys::look).
    written: Option<SystemTime>,
}

const COLUMNS: &str = "hash, id, tenant, label, read_only, created_ms, expires_ms, revoked_ms";

impl Keys {
    /// Opens the records; makes them when they are not there. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(file: &Path) -> Result<Self, Error> {
        let connection = schema::open(file)?;
        let mut held = KeyCache {
            connection,
            version: -1,
            by_hash: HashMap::new(),
            file: file.to_owned(),
            revoked: Tombstones::open(file, KEY_RESERVE)?,
            written: None,
        };
        held.written = held.written_now();
        // While the disk is full they are revoked by their tombstones.
        if let Err(Error::Unsynced) = held.apply_pending() {
            return Err(Error::Unsynced);
        }
        Ok(Self { held: Arc::new(Mutex::new(held)) })
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
        let secret = format!("isolet_{}", random_digits::<32>());
        let key = Key {
            id,
            tenant: new.tenant.clone(),
            label: new.label.clone(),
            read_only: new.read_only,
            created_at_ms: now_ms(),
            expires_at_ms: new.expires_at_ms,
            revoked_at_ms: None,
        };
        let mut held = self.lock();
        held.connection.execute(
            &format!("INSERT INTO keys ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL)"),
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
        held.read()?;
        Ok((key, secret))
    }

    /// All keys, revoked ones too, the oldest first. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list(&self) -> Result<Vec<Key>, Error> {
        let mut held = self.lock();
        held.read()?;
        let mut keys: Vec<Key> = held.by_hash.values().cloned().collect();
        keys.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        Ok(keys)
    }

    /// Ends a key by its id; `false` when there is none that could be ended. Blocks. On a full disk
    /// a running server knows of it when it next [reloads](Self::reload).
    ///
    /// # Errors
    /// [`Error`].
    pub fn revoke(&self, id: &str) -> Result<bool, Error> {
        let mut held = self.lock();
        held.read()?;
        let known = held.by_hash.values().any(|key| key.id == id && key.revoked_at_ms.is_none());
        if !known {
            return Ok(false);
        }
        let removal = Removal::Key { id: id.to_owned() };
        let written = held.apply_pending().and_then(|()| apply(&held.connection, &removal));
        match written {
            Err(Error::Full) => held.revoked.add(removal)?,
            written => written?,
        }
        held.read()?;
        Ok(true)
    }

    /// Looks for keys that another process has revoked while the disk was full. Blocks; to be called
    /// now and then, not with every request.
    pub fn reload(&self) {
        let mut held = self.lock();
        let written = held.written_now();
        if written != held.written {
            match Tombstones::open(&held.file, KEY_RESERVE) {
                Ok(revoked) => held.revoked = revoked,
                // What is known stays revoked, and the next look tries again.
                Err(error) => {
                    warn!(%error, "keys that were revoked on a full disk cannot be read");
                    return;
                }
            }
            held.written = written;
            // Read again: the rows do not say it yet.
            held.version = -1;
        }
    }

    /// What a key opens, by its digest; `None`: nothing (unknown, revoked, expired). A few
    /// microseconds, and the same steps for every unknown key.
    ///
    /// # Errors
    /// [`Error`].
    pub fn check(&self, digest: &KeyDigest) -> Result<Option<Grant>, Error> {
        let mut held = self.lock();
        held.reload_if_changed()?;
        let Some(key) = held.by_hash.get(digest) else { return Ok(None) };
        if !key.opens() {
            return Ok(None);
        }
        Ok(Some(Grant {
            key: key.id.clone(),
            tenant: key.tenant.clone(),
            read_only: key.read_only,
        }))
    }

    /// Whether a key, by its id, opens anything. For what it opened earlier and is still open.
    ///
    /// # Errors
    /// [`Error`].
    pub fn is_valid(&self, id: &str) -> Result<bool, Error> {
        let mut held = self.lock();
        held.reload_if_changed()?;
        Ok(held.by_hash.values().any(|key| key.id == id && key.opens()))
    }

    fn lock(&self) -> MutexGuard<'_, KeyCache> {
        // What a panic left is read again from the file when it has changed.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyCache {
    /// Writes what was revoked while the disk was full.
    fn apply_pending(&mut self) -> Result<(), Error> {
        if self.revoked.is_empty() {
            return Ok(());
        }
        for removal in self.revoked.all() {
            apply(&self.connection, removal)?;
        }
        self.revoked.clear()
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

    /// Reads again what another connection has changed.
    fn reload_if_changed(&mut self) -> Result<(), Error> {
        if self.version()? == self.version { Ok(()) } else { self.read() }
    }

    fn read(&mut self) -> Result<(), Error> {
        // Before the rows: a commit between the two is then seen at the next look.
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
            };
            Ok((KeyDigest::from_record(row.get(0)?), key))
        })?;
        self.by_hash = rows.filter_map(Result::ok).collect();
        let revoked = &self.revoked;
        for key in self.by_hash.values_mut() {
            if key.revoked_at_ms.is_none() && revoked.contains(&Removal::Key { id: key.id.clone() })
            {
                key.revoked_at_ms = Some(now_ms());
            }
        }
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
