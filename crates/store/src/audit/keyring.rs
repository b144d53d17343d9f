//! The keys that sign the logs: the current one in `DATA/audit/key`, and those that it replaced, with
//! the last entry that each of them signed in each log.
//!
//! An entry is valid only under the key of its number. So a retired key that became known to others
//! signs nothing new, and the first entry of its successor names the signature of the last entry
//! before it, which fixes all earlier ones.

use super::line::ChainKey;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file of the current key, 0600.
const KEY: &str = "key";
/// The file of the retired keys, 0600.
const RETIRED: &str = "retired.json";
/// Length of a fingerprint in hexadecimal digits.
const FINGERPRINT: usize = 16;

/// A key that another one has replaced.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RetiredKey {
    pub(super) secret: String,
    pub(super) retired_at_ms: i64,
    /// The last `seq` that it signed in the log of each tenant.
    pub(super) until: BTreeMap<String, u64>,
    /// Not every head is known to be signed by its successor, so this key's signature of the head
    /// with the entry `until` still counts.
    pub(super) heads_pending: bool,
}

/// All keys of a data directory.
#[derive(Clone)]
pub(super) struct KeyRing {
    secret: Vec<u8>,
    /// The keys that were replaced, the oldest first.
    retired: Vec<RetiredKey>,
}

impl KeyRing {
    /// Reads the keys. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`], also if there is no current key.
    pub(super) fn read(directory: &Path) -> Result<Self, Error> {
        let file = directory.join(KEY);
        let secret = fs::read(&file).map_err(|error| Error::io(&file, &error))?;
        let file = directory.join(RETIRED);
        let retired = match fs::read(&file) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|error| Error::Json(error.to_string()))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io(&file, &error)),
        };
        Ok(Self { secret, retired })
    }

    /// The keys of a tenant's log.
    pub(super) fn of(&self, tenant: &str) -> TenantKeys {
        let retired = self.retired.iter().map(|key| {
            let until = key.until.get(tenant).copied().unwrap_or(0);
            (until, ChainKey::of(key.secret.as_bytes(), tenant))
        });
        TenantKeys {
            retired: retired.collect(),
            current: ChainKey::of(&self.secret, tenant),
            heads_pending: self.retired.last().is_some_and(|key| key.heads_pending),
        }
    }

    /// A public name of the current key.
    pub(super) fn fingerprint(&self) -> String {
        fingerprint(&self.secret)
    }

    /// Retires the current key after these entries, and writes another one. Blocks.
    pub(super) fn replace(
        &self,
        directory: &Path,
        until: BTreeMap<String, u64>,
    ) -> io::Result<Self> {
        let secret = random_key()?.into_bytes();
        let mut retired = self.retired.clone();
        retired.push(RetiredKey {
            secret: String::from_utf8_lossy(&self.secret).into_owned(),
            retired_at_ms: isolet_clock::now_ms(),
            until,
            heads_pending: true,
        });
        // Retired first: until the current key is replaced, it still signs what follows.
        write(&directory.join(RETIRED), &serde_json::to_vec(&retired)?)?;
        write(&directory.join(KEY), &secret)?;
        File::open(directory)?.sync_all()?;
        Ok(Self { secret, retired })
    }

    /// Records that the current key signs every head. Blocks.
    pub(super) fn complete(&self, directory: &Path) -> io::Result<Self> {
        let mut complete = self.clone();
        complete.retired.iter_mut().for_each(|key| key.heads_pending = false);
        write(&directory.join(RETIRED), &serde_json::to_vec(&complete.retired)?)?;
        Ok(complete)
    }
}

/// The keys of one tenant's log, by the number of the entries that they sign.
#[derive(Clone)]
pub(crate) struct TenantKeys {
    retired: Vec<(u64, ChainKey)>,
    current: ChainKey,
    heads_pending: bool,
}

impl TenantKeys {
    /// The key of new entries, and of the head.
    pub(crate) fn current(&self) -> &ChainKey {
        &self.current
    }

    /// The key that a head with this last entry may have besides the current one: the key that was
    /// retired last, if its successor may not have signed the head yet.
    pub(crate) fn retired_head(&self, seq: u64) -> Option<&ChainKey> {
        let (until, key) = self.retired.last()?;
        (self.heads_pending && seq == *until).then_some(key)
    }

    /// The key of the entry with this number.
    pub(crate) fn at(&self, seq: u64) -> &ChainKey {
        let retired = self.retired.iter().find(|(until, _)| seq <= *until);
        retired.map_or(&self.current, |(_, key)| key)
    }
}

fn fingerprint(secret: &[u8]) -> String {
    let mut digits = hex::encode(Sha256::digest(secret));
    digits.truncate(FINGERPRINT);
    digits
}

/// 32 random bytes in hexadecimal.
fn random_key() -> io::Result<String> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex::encode(bytes))
}

/// Creates the current key, unless there is one.
pub(super) fn make_key(file: &Path) -> io::Result<()> {
    if file.try_exists()? {
        return Ok(());
    }
    write(file, random_key()?.as_bytes())
}

/// Writes a file with mode 0600 by an atomic rename.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    open.write_all(bytes)?;
    open.sync_all()?;
    fs::rename(&new, file)
}
