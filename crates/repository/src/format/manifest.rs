//! Manifests: what a snapshot consists of. Written last; a snapshot without a manifest does not
//! exist.

use crate::crypto::keys::{ChunkId, RepositoryId, TenantKeys};
use crate::crypto::seal::OVERHEAD_BYTES;
use crate::error::Error;
use crate::files::source::Root;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum length of the content of a manifest, in bytes. The records of a sandbox and its sessions
/// take most of it.
const CONTENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum length of a manifest, in bytes.
pub(crate) const MANIFEST_BYTES_MAX: usize = CONTENT_BYTES_MAX + OVERHEAD_BYTES;
/// Maximum number of roots of a snapshot: every layer is one.
const ROOTS_MAX: usize = 256;
/// The version of manifests. A manifest of another version is refused.
const VERSION: u32 = 1;

/// A snapshot in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    /// The id of the repository, which a manifest cannot leave.
    repository: String,
    /// The tenant, which no other one can read as.
    pub tenant: String,
    /// The id of the snapshot.
    pub id: String,
    /// When it was pushed, by the clock of the server, in milliseconds since 1970.
    pub pushed_at_ms: i64,
    /// The trees and files of the snapshot, in the order of the stream.
    pub roots: Vec<Root>,
    /// The number of files, directories and other entries.
    pub entries: u64,
    /// The size of the data in its files without their holes, in bytes.
    pub bytes: u64,
    /// The record of the snapshot, as the caller gave it.
    pub record: Value,
    /// The chunks with the list of the chunks of the stream.
    lists: Vec<String>,
}

/// What a push puts into a manifest.
pub(crate) struct Contents {
    pub(crate) tenant: String,
    pub(crate) id: String,
    pub(crate) pushed_at_ms: i64,
    pub(crate) roots: Vec<Root>,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) record: Value,
    pub(crate) lists: Vec<ChunkId>,
}

impl Manifest {
    pub(crate) fn new(repository: &RepositoryId, contents: Contents) -> Self {
        Self {
            version: VERSION,
            repository: hex::encode(repository),
            tenant: contents.tenant,
            id: contents.id,
            pushed_at_ms: contents.pushed_at_ms,
            roots: contents.roots,
            entries: contents.entries,
            bytes: contents.bytes,
            record: contents.record,
            lists: contents.lists.iter().map(|id| hex::encode(id.0)).collect(),
        }
    }

    /// The chunks with the list of the chunks of the stream.
    pub(crate) fn lists(&self, name: &str) -> Result<Vec<ChunkId>, Error> {
        let id = |text: &String| {
            let mut id = ChunkId([0; 32]);
            hex::decode_to_slice(text, &mut id.0).ok()?;
            Some(id)
        };
        let lists: Option<Vec<ChunkId>> = self.lists.iter().map(id).collect();
        lists.ok_or_else(|| Error::damaged(name, "an id is not valid"))
    }

    pub(crate) fn seal(&self, keys: &TenantKeys, name: &str) -> Result<Vec<u8>, Error> {
        let content = serde_json::to_vec(self).map_err(Error::fault)?;
        if content.len() > CONTENT_BYTES_MAX {
            let limit = format!("{} MiB", CONTENT_BYTES_MAX >> 20);
            return Err(Error::TooLarge { what: "the records of the snapshot", limit });
        }
        keys.sealer.seal(name.as_bytes(), &content)
    }

    /// Opens a manifest and checks that it is that of this repository.
    pub(crate) fn open(
        repository: &RepositoryId,
        keys: &TenantKeys,
        name: &str,
        sealed: &[u8],
    ) -> Result<Self, Error> {
        let damaged = |reason: &str| Error::damaged(name, reason);
        let content = keys.sealer.open(name.as_bytes(), sealed, CONTENT_BYTES_MAX);
        let content = content.ok_or_else(|| damaged("it was not written by this repository"))?;
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let versioned: Versioned =
            serde_json::from_slice(&content).map_err(|_| damaged("it does not read"))?;
        if versioned.version != VERSION {
            return Err(Error::Later { what: "the snapshot", version: versioned.version });
        }
        let manifest: Self =
            serde_json::from_slice(&content).map_err(|_| damaged("it does not read"))?;
        if manifest.repository != hex::encode(repository) {
            return Err(damaged("it is of another repository"));
        }
        if manifest.roots.len() > ROOTS_MAX || !manifest.roots.iter().all(Root::is_valid) {
            return Err(damaged("a name of a root is not valid"));
        }
        Ok(manifest)
    }
}
