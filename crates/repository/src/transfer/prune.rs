//! Deletes chunks that no snapshot has any more, while servers push and pull.
//!
//! A push may rely on a chunk that was in the index when it began, and writes its manifest at most
//! 12 hours later. So a pack is deleted in two steps:
//!
//! 1. A prune finds no snapshot with one of its chunks. It writes a mark with the pack's index, and
//!    takes the pack out of the index. A push that begins now does not rely on it any more.
//! 2. A prune at least [`PRUNE_AGE`] later looks again. If a snapshot has one of the chunks, because
//!    its push began before step 1, the pack returns to the index. Otherwise it is deleted.
//!
//! Pulls read marks too, so a snapshot whose chunks lie in marked packs can be pulled. Packs without
//! index, which a push left that was killed, are deleted when they are older than [`PRUNE_AGE`].
//! A pack with little that is needed is written again, see [`crate::transfer::repack`].
//!
//! All times are those of the store's clock, also those in marks: the clock of the server that prunes
//! counts for nothing. Two prunes at the same time are safe: each deletes only what it has read.
//!
//! What damages the objects of one tenant keeps the chunks of that tenant, and of no other.

use crate::crypto::keys::{ChunkId, Tag};
use crate::error::Error;
use crate::format::index::{self, PackIndex};
use crate::format::names::TENANTS;
use crate::objects::client::Listed;
use crate::transfer::known::NamedIndex;
use crate::transfer::packer::write_indexes;
use crate::transfer::repository::{Repository, TenantRepository};
use futures_util::TryStreamExt;
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long a pack stays after the last snapshot with a chunk of it is gone: twice the time limit of
/// a push.
pub const PRUNE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Index objects with fewer chunks than this are merged.
const SMALL_INDEX_CHUNKS: usize = 10_000;
/// Small index objects that are not merged yet.
const SMALL_INDEXES_MAX: usize = 8;

/// What a prune did.
#[derive(Debug, Clone, Default)]
pub struct Pruned {
    /// Tenants with objects in the repository.
    pub tenants: u64,
    /// Their snapshots.
    pub snapshots: u64,
    /// Packs that a later prune deletes.
    pub marked_packs: u64,
    /// The size of these, in bytes.
    pub marked_bytes: u64,
    /// Packs that were deleted.
    pub deleted_packs: u64,
    /// The size of these, in bytes.
    pub deleted_bytes: u64,
    /// Packs of which the needed part was written again.
    pub repacked_packs: u64,
    /// Tenants of which nothing was deleted because an object cannot be read.
    pub failed: Vec<NotPruned>,
}

/// A tenant whose chunks were not pruned.
#[derive(Debug, Clone)]
pub struct NotPruned {
    /// The name of its directory in the store.
    pub directory: String,
    /// Why.
    pub error: Error,
}

impl Repository {
    /// Prunes the chunks of all tenants. `age` is [`PRUNE_AGE`] unless no server pushes. If a manifest or an
    /// index does not read, nothing more of that tenant is deleted, and [`Pruned::failed`] names it.
    ///
    /// # Errors
    /// Errors of the store, which concern all tenants.
    pub async fn prune(&self, age: Duration) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        let now_ms = self.objects.now_ms().await?;
        for tag in self.objects.list_directories(TENANTS).await? {
            pruned.tenants += 1;
            match self.tenant_with(String::new(), &tag).prune(now_ms, age, &mut pruned).await {
                Ok(()) => {}
                Err(
                    error @ (Error::Damaged { .. } | Error::Later { .. } | Error::TooLarge { .. }),
                ) => {
                    let directory = format!("{TENANTS}/{}", hex::encode(tag));
                    pruned.failed.push(NotPruned { directory, error });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(pruned)
    }
}

impl TenantRepository {
    /// `now_ms` is by the clock of the store, before anything is listed.
    async fn prune(&self, now_ms: i64, age: Duration, pruned: &mut Pruned) -> Result<(), Error> {
        let before_ms = now_ms.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        // Packs before indexes, so that one that is being pushed is in both or too new; indexes
        // before snapshots, so that the chunks of each snapshot are in an index or a mark.
        let packs = self.objects.list(&self.names.packs()).await?;
        let indexes = self.indexes(false).await?;
        let doomed = self.indexes(true).await?;
        let needed = self.needed_chunks(pruned).await?;
        let is_needed = |pack: &PackIndex| pack.chunks.iter().any(|one| needed.contains(&one.id));
        let mut listed: HashSet<Tag> = HashSet::new();
        listed.extend(all_packs(&indexes).map(|pack| pack.pack));
        let has: HashSet<ChunkId> =
            all_packs(&indexes).flat_map(|pack| &pack.chunks).map(|one| one.id).collect();
        let marked: HashSet<ChunkId> =
            all_packs(&doomed).flat_map(|pack| &pack.chunks).map(|one| one.id).collect();
        if !needed.iter().all(|id| has.contains(id) || marked.contains(id)) {
            // A store may have listed an earlier state. The packs of what it left out would look unused.
            let reason = "a chunk that a snapshot needs is in none of them";
            return Err(Error::damaged(&self.names.indexes(), reason));
        }
        for mark in &doomed {
            for pack in mark.packs.iter() {
                let only_here = |id: &ChunkId| needed.contains(id) && !has.contains(id);
                if pack.chunks.iter().any(|one| only_here(&one.id)) {
                    let packs = vec![pack.clone()];
                    write_indexes(&self.objects, &self.names, &self.keys, packs).await?;
                    self.objects.delete(&self.names.doomed(&mark.tag)).await?;
                } else if mark.doomed_at_ms <= before_ms && !listed.contains(&pack.pack) {
                    self.objects.delete(&self.names.pack(&pack.pack)).await?;
                    self.objects.delete(&self.names.doomed(&mark.tag)).await?;
                    pruned.deleted_packs += 1;
                    pruned.deleted_bytes += pack.bytes();
                }
                listed.insert(pack.pack);
            }
        }
        let mut orphans: Vec<Listed> =
            packs.into_iter().filter(|one| !listed.contains(&one.tag)).collect();
        orphans.retain(|one| one.written_ms <= before_ms);
        if !orphans.is_empty() {
            // Another prune may have moved a pack from a mark to an index while both were read.
            let again: HashSet<Tag> = self.locations().await?.packs.into_iter().collect();
            orphans.retain(|one| !again.contains(&one.tag));
        }
        for pack in orphans {
            self.objects.delete(&self.names.pack(&pack.tag)).await?;
            pruned.deleted_packs += 1;
            pruned.deleted_bytes += pack.bytes;
        }
        let sparse = self.repack(&indexes, &needed, pruned).await?;
        let is_doomed = |pack: &PackIndex| !is_needed(pack) || sparse.contains(&pack.pack);
        self.doom(indexes, is_doomed, now_ms, pruned).await
    }

    /// Marks packs and takes them out of the index. Merges small index objects.
    async fn doom(
        &self,
        indexes: Vec<NamedIndex>,
        is_doomed: impl Fn(&PackIndex) -> bool,
        now_ms: i64,
        pruned: &mut Pruned,
    ) -> Result<(), Error> {
        let chunks = |index: &NamedIndex| index.packs.iter().map(|one| one.chunks.len()).sum();
        let is_small = |index: &NamedIndex| -> bool {
            let chunks: usize = chunks(index);
            chunks < SMALL_INDEX_CHUNKS
        };
        let merge = indexes.iter().filter(|index| is_small(index)).count() > SMALL_INDEXES_MAX;
        let mut kept = Vec::new();
        let mut replaced = Vec::new();
        for index in indexes {
            let changes = index.packs.iter().any(&is_doomed);
            if !(changes || merge && is_small(&index)) {
                continue;
            }
            replaced.push(index.tag);
            for pack in Arc::unwrap_or_clone(index.packs) {
                if !is_doomed(&pack) {
                    kept.push(pack);
                    continue;
                }
                pruned.marked_packs += 1;
                pruned.marked_bytes += pack.bytes();
                let name = self.names.doomed(&pack.pack);
                let sealed = index::seal(&self.keys, &name, vec![pack], now_ms)?;
                self.objects.put(&name, sealed).await?;
            }
        }
        // The new index objects before the old ones are deleted: a chunk is always in one.
        write_indexes(&self.objects, &self.names, &self.keys, kept).await?;
        for tag in replaced {
            self.objects.delete(&self.names.index(&tag)).await?;
        }
        Ok(())
    }

    /// The chunks of all snapshots.
    async fn needed_chunks(&self, pruned: &mut Pruned) -> Result<HashSet<ChunkId>, Error> {
        let mut needed = HashSet::new();
        let listed = self.objects.list(&self.names.snapshots()).await?;
        if listed.is_empty() {
            return Ok(needed);
        }
        let locations = Arc::new(self.locations().await?);
        for one in listed {
            let name = self.names.snapshot(&one.tag);
            // One that was deleted since needs nothing.
            let Some(manifest) = self.read_manifest(&name).await? else { continue };
            pruned.snapshots += 1;
            let lists = manifest.lists(&name)?;
            let mut text = Vec::new();
            let mut fetched = pin!(self.fetch(&locations, &lists, None)?);
            while let Some(list) = fetched.try_next().await? {
                text.extend(list);
                let whole = text.len() - text.len() % 32;
                let ids = text[..whole].chunks_exact(32);
                needed.extend(ids.filter_map(|id| Some(ChunkId(id.try_into().ok()?))));
                text.drain(..whole);
            }
            needed.extend(lists);
        }
        Ok(needed)
    }
}

/// All packs of index objects.
pub(crate) fn all_packs(indexes: &[NamedIndex]) -> impl Iterator<Item = &PackIndex> {
    indexes.iter().flat_map(|index| index.packs.iter())
}
