//! Collects sealed chunks into packs and uploads them.
//!
//! Each pack is uploaded first; once the store is seen to have it, an index object for it follows. A push
//! that ends early leaves complete packs with their indexes, and the next one does not send them again. At
//! the end one index object replaces those of the single packs.

use crate::crypto::keys::{ChunkId, Tag, TenantKeys, random_tag};
use crate::error::Error;
use crate::format::index::{self, CHUNKS_MAX, PackIndex, PackedChunk};
use crate::format::names::TenantNames;
use crate::objects::client::Objects;
use crate::transfer::checkpoint::Checkpoint;
use crate::transfer::progress::ProgressSender;
use crate::transfer::repository::TenantRepository;
use bytes::Bytes;
use std::sync::Arc;
use tokio::task::JoinSet;

/// A pack is uploaded when it has reached this length, in bytes: 20,000 small files are not 20,000
/// objects, and a lost upload costs little.
const PACK_BYTES: usize = 16 * 1024 * 1024;
/// How often a pack is sent that the store accepts and does not have.
const PUTS_MAX: usize = 3;
/// How many packs are uploaded at the same time. Each takes its length of memory.
const UPLOADS_AT_ONCE: usize = 3;

/// A pack that was uploaded, and its index object.
struct Uploaded {
    index: Tag,
    pack: PackIndex,
}

/// What every upload needs.
#[derive(Clone)]
struct Target {
    objects: Objects,
    names: TenantNames,
    keys: Arc<TenantKeys>,
    checkpoint: Checkpoint,
    progress: Option<ProgressSender>,
}

pub(crate) struct Packer {
    target: Target,
    content: Vec<u8>,
    chunks: Vec<PackedChunk>,
    uploads: JoinSet<Result<Uploaded, Error>>,
    uploaded: Vec<Uploaded>,
    pub(crate) sent_bytes: u64,
    pub(crate) sent_chunks: u64,
}

impl Packer {
    pub(crate) fn new(
        repository: &TenantRepository,
        checkpoint: Checkpoint,
        progress: Option<ProgressSender>,
    ) -> Self {
        let target = Target {
            objects: repository.objects.clone(),
            names: repository.names.clone(),
            keys: Arc::clone(&repository.keys),
            checkpoint,
            progress,
        };
        Self {
            target,
            content: Vec::new(),
            chunks: Vec::new(),
            uploads: JoinSet::new(),
            uploaded: Vec::new(),
            sent_bytes: 0,
            sent_chunks: 0,
        }
    }

    /// Adds a sealed chunk. Waits while too many packs are being uploaded.
    pub(crate) async fn add(&mut self, id: ChunkId, sealed: &[u8]) -> Result<(), Error> {
        let bytes = u32::try_from(sealed.len()).map_err(Error::fault)?;
        self.content.extend_from_slice(sealed);
        self.chunks.push(PackedChunk { id, bytes });
        self.sent_chunks += 1;
        if self.content.len() >= PACK_BYTES {
            self.upload().await?;
        }
        Ok(())
    }

    async fn upload(&mut self) -> Result<(), Error> {
        while self.uploads.len() >= UPLOADS_AT_ONCE {
            self.join().await?;
        }
        let content = std::mem::take(&mut self.content);
        let chunks = std::mem::take(&mut self.chunks);
        self.sent_bytes += content.len() as u64;
        let pack = PackIndex { pack: random_tag()?, chunks };
        self.uploads.spawn(upload(self.target.clone(), pack, content));
        Ok(())
    }

    async fn join(&mut self) -> Result<(), Error> {
        if let Some(uploaded) = self.uploads.join_next().await {
            self.uploaded.push(uploaded.map_err(Error::fault)??);
        }
        Ok(())
    }

    /// Uploads what is left.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        if !self.chunks.is_empty() {
            self.upload().await?;
        }
        while !self.uploads.is_empty() {
            self.join().await?;
        }
        Ok(())
    }

    /// Replaces the index objects of the packs by few.
    pub(crate) async fn merge(&mut self) -> Result<(), Error> {
        if self.uploaded.len() < 2 {
            return Ok(());
        }
        let uploaded = std::mem::take(&mut self.uploaded);
        let old: Vec<Tag> = uploaded.iter().map(|one| one.index).collect();
        let packs = uploaded.into_iter().map(|one| one.pack).collect();
        let Target { objects, names, keys, .. } = &self.target;
        write_indexes(objects, names, keys, packs).await?;
        for tag in old {
            objects.delete(&names.index(&tag)).await?;
        }
        Ok(())
    }
}

async fn upload(target: Target, pack: PackIndex, content: Vec<u8>) -> Result<Uploaded, Error> {
    let bytes = content.len() as u64;
    put_pack(&target, &pack.pack, content.into()).await?;
    let Target { objects, names, keys, progress, checkpoint } = target;
    let tag = random_tag()?;
    let name = names.index(&tag);
    let sealed = index::seal(&keys, &name, vec![pack.clone()], 0)?;
    objects.put(&name, sealed).await?;
    if let Some(progress) = progress {
        progress.send_modify(|now| now.transferred += bytes);
    }
    checkpoint.pass("push.indexed").await?;
    Ok(Uploaded { index: tag, pack })
}

/// Writes a pack, and looks whether the store has it, before anything relies on it.
async fn put_pack(target: &Target, pack: &Tag, content: Bytes) -> Result<(), Error> {
    let Target { objects, names, checkpoint, .. } = target;
    let name = names.pack(pack);
    for _ in 0..PUTS_MAX {
        objects.put(&name, content.clone()).await?;
        checkpoint.pass("push.packed").await?;
        if objects.length(&name).await? == Some(content.len() as u64) {
            return Ok(());
        }
        tracing::warn!(%name, "the store has accepted a pack and does not have it; it is sent again");
    }
    Err(Error::Store("it has accepted a pack and does not have it".to_owned()))
}

/// Writes index objects for packs, as few as their limit allows.
pub(crate) async fn write_indexes(
    objects: &Objects,
    names: &TenantNames,
    keys: &TenantKeys,
    packs: Vec<PackIndex>,
) -> Result<(), Error> {
    let mut together: Vec<PackIndex> = Vec::new();
    let mut chunks = 0;
    let mut packs = packs.into_iter().peekable();
    while let Some(pack) = packs.next() {
        chunks += pack.chunks.len();
        together.push(pack);
        let is_full = packs.peek().is_none_or(|next| chunks + next.chunks.len() > CHUNKS_MAX);
        if is_full {
            let name = names.index(&random_tag()?);
            let sealed = index::seal(keys, &name, std::mem::take(&mut together), 0)?;
            objects.put(&name, sealed).await?;
            chunks = 0;
        }
    }
    Ok(())
}
