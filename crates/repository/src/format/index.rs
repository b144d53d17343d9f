//! Index objects: which chunks lie in which packs, in which order.

use crate::crypto::keys::{ChunkId, Tag, TenantKeys};
use crate::crypto::seal::OVERHEAD_BYTES;
use crate::error::Error;
use crate::format::chunk::CHUNK_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// Maximum length of the content of an index object, in bytes: about 400,000 chunks.
const CONTENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum length of an index object, in bytes.
pub(crate) const INDEX_BYTES_MAX: usize = CONTENT_BYTES_MAX + OVERHEAD_BYTES;
/// Maximum number of chunks in one index object, so that it stays within its length.
pub(crate) const CHUNKS_MAX: usize = 300_000;
/// Maximum length of a pack, in bytes.
pub(crate) const PACK_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The version of index objects.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    version: u32,
    /// When the packs were doomed, in milliseconds since 1970 by the clock of the store; 0 if they are not.
    doomed_at_ms: i64,
    packs: Vec<PackIndex>,
}

/// The chunks of a pack, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackIndex {
    pub(crate) pack: Tag,
    pub(crate) chunks: Vec<PackedChunk>,
}

/// A chunk in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackedChunk {
    pub(crate) id: ChunkId,
    /// Its sealed length, in bytes.
    pub(crate) bytes: u32,
}

/// The content of an index object.
#[derive(Debug)]
pub(crate) struct ReadIndex {
    pub(crate) doomed_at_ms: i64,
    pub(crate) packs: Vec<PackIndex>,
}

impl PackIndex {
    /// Its sealed chunks with their offsets.
    pub(crate) fn located(&self) -> impl Iterator<Item = (u64, &PackedChunk)> {
        self.chunks.iter().scan(0, |offset, chunk| {
            let at = *offset;
            *offset += u64::from(chunk.bytes);
            Some((at, chunk))
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum()
    }
}

/// Seals an index object under its name.
pub(crate) fn seal(
    keys: &TenantKeys,
    name: &str,
    packs: Vec<PackIndex>,
    doomed_at_ms: i64,
) -> Result<Vec<u8>, Error> {
    let content = postcard::to_stdvec(&Index { version: VERSION, doomed_at_ms, packs });
    keys.sealer.seal(name.as_bytes(), &content.map_err(Error::fault)?)
}

/// Opens an index object and checks its parts.
pub(crate) fn open(keys: &TenantKeys, name: &str, sealed: &[u8]) -> Result<ReadIndex, Error> {
    let damaged = |reason: &str| Error::damaged(name, reason);
    let content = keys.sealer.open(name.as_bytes(), sealed, CONTENT_BYTES_MAX);
    let content = content.ok_or_else(|| damaged("it was not written by this repository"))?;
    let index: Index = postcard::from_bytes(&content).map_err(|_| damaged("it does not read"))?;
    if index.version != VERSION {
        return Err(Error::Later { what: "an index", version: index.version });
    }
    let longest = CHUNK_BYTES_MAX + OVERHEAD_BYTES;
    for pack in &index.packs {
        let fits = |chunk: &PackedChunk| (chunk.bytes as usize) <= longest;
        if !pack.chunks.iter().all(fits) || pack.bytes() > PACK_BYTES_MAX {
            return Err(damaged("a pack is too long"));
        }
    }
    Ok(ReadIndex { doomed_at_ms: index.doomed_at_ms, packs: index.packs })
}
