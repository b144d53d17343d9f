//! API keys, of which only the SHA-256 digest is stored.
//!
//! Every request reads a key, so reading never waits for a disk. There are two connections to the
//! records. The writer's is locked during a write and its `fsync`; the reader's only while it asks
//! SQLite whether anything was committed, and reads the keys that were added or revoked since (each
//! such change has a number of its own, the column `changed`). All keys are in memory.

mod delegation;
mod known;
mod replicated;

use crate::error::Error;
use crate::key_digest::KeyDigest;
use crate::records::apply;
use crate::schema::{self, NEXT_CHANGE};
use crate::tombstones::{KEY_RESERVE, Removal, Tombstones};
pub use delegation::{Delegation, KeyLimits};
use isolet_clock::now_ms;
use known::KnownKeys;
pub use replicated::{KeyRecord, MergedKeys};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;
use tracing::warn;

/// Maximum length of a label, in bytes.
pub const LABEL_BYTES_MAX: usize = 200;

/// How long the record of a key that has ended stays, in ms. Longer than a fleet keeps the record of an
/// expired key, so that no other node adds it again.
const ENDED_KEPT_MS: i64 = 8 * 86_400_000;

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
/// to the others at their next call. Clones share their connections.
#[derive(Clone)]
pub struct Keys {
    shared: Arc<Shared>,
}

struct Shared {
    /// The file of the records.
    file: PathBuf,
    /// Never held while anything is read from or written to a disk.
    known: RwLock<KnownKeys>,
    /// Taken after `writer` where both are.
    reader: Mutex<Reader>,
    writer: Mutex<Writer>,
    /// Modification time of the file of tombstones at the last [`Keys::reload`].
    reloaded: Mutex<Option<SystemTime>>,
}

/// A connection that only reads.
struct Reader {
    connection: Connection,
    /// SQLite's counter of commits by other connections.
    version: i64,
    /// The highest number of a change that was read.
    changed: i64,
}

/// A connection that writes.
struct Writer {
    connection: Connection,
    /// Keys that were revoked while the disk was full.
    revoked: Tombstones,
    /// Modification time of the file of `revoked` when it was read.
    written: Option<SystemTime>,
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

const COLUMNS: &str =
    "hash, id, tenant, label, read_only, created_ms, expires_ms, revoked_ms, used_ms";

impl Keys {
    /// Opens the records, and creates them if they are missing. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(file: &Path) -> Result<Self, Error> {
        let connection = schema::open(file)?;
        let reader = Reader { connection: schema::open_to_read(file)?, version: -1, changed: -1 };
        let revoked = Tombstones::open(file, KEY_RESERVE)?;
        let written = modified(revoked.path());
        let mut writer = Writer { connection, revoked, written };
        // On a full disk, the tombstones alone revoke these keys.
        if let Err(Error::Unsynced) = writer.apply_pending() {
            return Err(Error::Unsynced);
        }
        let tombstones: Vec<Removal> = writer.revoked.all().cloned().collect();
        let shared = Shared {
            file: file.to_owned(),
            known: RwLock::default(),
            reader: Mutex::new(reader),
            writer: Mutex::new(writer),
            reloaded: Mutex::new(written),
        };
        let keys = Self { shared: Arc::new(shared) };
        keys.refresh()?;
        keys.known_mut().revoke_all(&tombstones, now_ms());
        Ok(keys)
    }

    /// Creates a key; only this call returns the secret. Blocks.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Bad`] for a label that is too long.
    pub fn add(&self, new: &NewKey) -> Result<(Key, String), Error> {
        self.insert(new, None)
    }

    /// Creates a key on behalf of another key. The limits and the validity of the other key are checked
    /// in the transaction that adds the key: no concurrent call exceeds a limit, and a key that is
    /// revoked at the same time either has created the new key before, or creates none. Blocks.
    ///
    /// # Errors
    /// [`Error::TooManyKeys`], [`Error::TooManyRecentKeys`], [`Error::CreatorEnded`], and those of
    /// [`Keys::add`].
    pub fn add_delegated(
        &self,
        new: &NewKey,
        delegation: &Delegation,
    ) -> Result<(Key, String), Error> {
        self.insert(new, Some(delegation))
    }

    fn insert(
        &self,
        new: &NewKey,
        delegation: Option<&Delegation>,
    ) -> Result<(Key, String), Error> {
        if new.label.len() > LABEL_BYTES_MAX || new.tenant.is_empty() {
            return Err(Error::Bad("a key needs a tenant, and a label of at most 200 bytes"));
        }
        let id = format!("key_{}", random_digits::<8>());
        let secret = new.format.random();
        let mut writer = self.writer();
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
        let transaction =
            writer.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(delegation) = delegation {
            // A revocation on a full disk is not in the table.
            let creator = delegation.creator.as_deref();
            if creator.is_some_and(|id| !self.known().is_valid(id)) {
                return Err(Error::CreatorEnded);
            }
            delegation.check(&transaction, &key)?;
        }
        transaction.execute(
            &format!(
                "INSERT INTO keys ({COLUMNS}, changed) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL, {NEXT_CHANGE})"
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
        transaction.commit()?;
        drop(writer);
        self.refresh()?;
        Ok((key, secret))
    }

    /// All keys, including revoked ones, the oldest first.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list(&self) -> Result<Vec<Key>, Error> {
        self.select(|_| true)
    }

    /// The keys of a tenant, including revoked ones, the oldest first.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list_of(&self, tenant: &str) -> Result<Vec<Key>, Error> {
        self.select(|key| key.tenant == tenant)
    }

    fn select(&self, is_wanted: impl Fn(&Key) -> bool) -> Result<Vec<Key>, Error> {
        self.refresh()?;
        let known = self.known();
        let wanted = known.iter().filter(|(_, one)| is_wanted(one.stored()));
        let mut keys: Vec<Key> = wanted.map(|(_, one)| one.key()).collect();
        drop(known);
        keys.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        Ok(keys)
    }

    /// Revokes a key by its id. Returns `false` if there is no such key, or it is revoked already. Blocks. On
    /// a full disk, a running server notices at its next [`Keys::reload`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn revoke(&self, id: &str) -> Result<bool, Error> {
        let mut writer = self.writer();
        self.refresh()?;
        if !self.known().is_open(id) {
            return Ok(false);
        }
        let removal = Removal::Key { id: id.to_owned() };
        let written = writer.apply_pending().and_then(|()| apply(&writer.connection, &removal));
        match written {
            Err(Error::Full) => {
                writer.add_tombstone(removal)?;
                self.known_mut().revoke(id, now_ms());
            }
            written => written?,
        }
        self.refresh()?;
        Ok(true)
    }

    /// Reads which keys another process has revoked on a full disk. Callers call this periodically, not
    /// for each request.
    pub fn reload(&self) {
        let path = KEY_RESERVE.path(&self.shared.file);
        let written = modified(&path);
        let mut reloaded = self.shared.reloaded.lock().unwrap_or_else(PoisonError::into_inner);
        if written == *reloaded {
            return;
        }
        let read = self.refresh().and_then(|()| Tombstones::read(&self.shared.file, KEY_RESERVE));
        match read {
            Ok(revoked) => self.known_mut().revoke_all(&revoked, now_ms()),
            // Known keys stay revoked, and the next call tries again.
            Err(error) => {
                warn!(%error, "cannot read the keys that were revoked on a full disk");
                return;
            }
        }
        *reloaded = written;
    }

    /// Returns what the key with this digest allows; `None` if it is unknown, revoked or expired. Takes a
    /// few microseconds, and the same steps for every unknown key. Counts as a use of the key.
    ///
    /// # Errors
    /// [`Error`].
    pub fn grant_of(&self, digest: &KeyDigest) -> Result<Option<Grant>, Error> {
        self.refresh()?;
        let known = self.known();
        Ok(known.get(digest).filter(|one| one.is_valid()).map(|one| {
            one.note_use(now_ms());
            one.grant()
        }))
    }

    /// Whether the key with this id is still valid. For connections that it has opened before.
    ///
    /// # Errors
    /// [`Error`].
    pub fn is_valid(&self, id: &str) -> Result<bool, Error> {
        self.refresh()?;
        Ok(self.known().is_valid(id))
    }

    /// The ids of the tenant's keys that are neither revoked nor expired.
    ///
    /// # Errors
    /// See [`Keys::grant_of`].
    pub fn valid_ids_of(&self, tenant: &str) -> Result<Vec<String>, Error> {
        self.refresh()?;
        let known = self.known();
        let keys = known.iter().map(|(_, one)| one.stored());
        let own = keys.filter(|key| key.tenant == tenant && key.is_valid());
        Ok(own.map(|key| key.id.clone()).collect())
    }

    /// The last use of each key that was used since its last use was recorded, for
    /// [`crate::Store::record_key_uses`].
    #[must_use]
    pub fn unrecorded_uses(&self) -> Vec<KeyUse> {
        self.known().iter().filter_map(|(_, one)| one.unrecorded_use()).collect()
    }

    /// Notes that these uses are in the records.
    pub fn note_recorded(&self, uses: &[KeyUse]) {
        let known = self.known();
        uses.iter().for_each(|one| known.note_recorded(one));
    }

    /// Deletes the records of keys that ended more than eight days ago: those that have expired, and
    /// with `revoked` also those that were revoked. In a fleet, the record of a revoked key without an
    /// expiry must stay, because another node may come back with the valid key. Returns how many. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn forget_ended(&self, revoked: bool) -> Result<usize, Error> {
        let before_ms = now_ms().saturating_sub(ENDED_KEPT_MS);
        let ended = self.known().ended_before(before_ms, revoked);
        if ended.is_empty() {
            return Ok(0);
        }
        let mut writer = self.writer();
        let transaction = writer.connection.transaction()?;
        let mut count = 0;
        for id in &ended {
            // The number of the last change must stay, so that no number is used twice.
            count += transaction
                .prepare_cached(
                    "DELETE FROM keys WHERE id = ?1 AND changed < (SELECT max(changed) FROM keys)",
                )?
                .execute([id])?;
        }
        transaction.commit()?;
        drop(writer);
        self.known_mut().remove(&ended);
        Ok(count)
    }

    /// Reads the keys that were added or revoked since the last call, if anything was committed at all.
    fn refresh(&self) -> Result<(), Error> {
        let mut reader = self.shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the rows, so that a commit in between is noticed at the next call.
        let version = reader.version()?;
        if version == reader.version {
            return Ok(());
        }
        let changes = reader.changes()?;
        if let Some(last) = changes.iter().map(|change| change.number).max() {
            let mut known = self.known_mut();
            changes.into_iter().for_each(|change| known.put(change.digest, change.key));
            drop(known);
            reader.changed = last;
        }
        reader.version = version;
        Ok(())
    }

    // A panic under a lock leaves at most outdated keys, which are read again after a change.

    fn known(&self) -> RwLockReadGuard<'_, KnownKeys> {
        self.shared.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, KnownKeys> {
        self.shared.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row of the table that was added or revoked.
struct ChangedKey {
    number: i64,
    digest: KeyDigest,
    key: Key,
}

impl Reader {
    fn version(&self) -> Result<i64, Error> {
        Ok(self
            .connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?)
    }

    /// The keys that were added or revoked since the last call. Rows that cannot be read are left out.
    fn changes(&self) -> Result<Vec<ChangedKey>, Error> {
        let text = format!("SELECT {COLUMNS}, changed FROM keys WHERE changed > ?1");
        let mut query = self.connection.prepare_cached(&text)?;
        let rows = query.query_map([self.changed], |row| {
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
            let digest = KeyDigest::from_record(row.get(0)?);
            Ok(ChangedKey { number: row.get(9)?, digest, key })
        })?;
        Ok(rows.filter_map(Result::ok).collect())
    }
}

impl Writer {
    /// Writes the revocations that were made on a full disk to the records.
    fn apply_pending(&mut self) -> Result<(), Error> {
        if modified(self.revoked.path()) != self.written {
            self.revoked.read_again()?;
        }
        if !self.revoked.is_empty() {
            for removal in self.revoked.all() {
                apply(&self.connection, removal)?;
            }
            self.revoked.clear()?;
        }
        self.written = modified(self.revoked.path());
        Ok(())
    }

    fn add_tombstone(&mut self, removal: Removal) -> Result<(), Error> {
        self.revoked.add(removal)?;
        self.written = modified(self.revoked.path());
        Ok(())
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|about| about.modified()).ok()
}

/// `N` random bytes as hexadecimal digits.
fn random_digits<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes).expect("random bytes");
    hex::encode(bytes)
}

#[cfg(test)]
mod tests;
