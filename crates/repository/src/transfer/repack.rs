//! Writes the needed chunks of packs that contain little else into new packs. The old packs are
//! marked and deleted like those that nobody needs.

use crate::crypto::keys::{ChunkId, Tag};
use crate::error::Error;
use crate::format::index::PackIndex;
use crate::transfer::checkpoint::Checkpoint;
use crate::transfer::known::NamedIndex;
use crate::transfer::packer::Packer;
use crate::transfer::prune::{Pruned, all_packs};
use crate::transfer::repository::TenantRepository;
use std::collections::HashSet;

/// A pack is written again when less than this part of it is needed: a third.
const NEEDED_DIVISOR: u64 = 3;
/// Maximum number of packs that one prune writes again, so that it ends.
const PACKS_MAX: u64 = 1000;

impl TenantRepository {
    /// Returns the packs whose needed chunks have a new place.
    pub(crate) async fn repack(
        &self,
        indexes: &[NamedIndex],
        needed: &HashSet<ChunkId>,
        pruned: &mut Pruned,
    ) -> Result<HashSet<Tag>, Error> {
        let mut packer = Packer::new(self, Checkpoint::default(), None);
        let mut moved = HashSet::new();
        let mut repacked: HashSet<Tag> = HashSet::new();
        for pack in all_packs(indexes).filter(|pack| is_sparse(pack, needed)) {
            if repacked.len() as u64 >= PACKS_MAX {
                break;
            }
            let name = self.names.pack(&pack.pack);
            for (offset, chunk) in pack.located() {
                if !needed.contains(&chunk.id) || !moved.insert(chunk.id) {
                    continue;
                }
                let range = offset..offset + u64::from(chunk.bytes);
                let sealed = self.objects.get_range(&name, range).await?;
                // Sealed under its id, so it is valid in every pack.
                if crate::format::chunk::open(&self.keys, &chunk.id, &sealed).is_none() {
                    return Err(Error::damaged(&name, "a chunk is not what was pushed"));
                }
                packer.add(chunk.id, &sealed).await?;
            }
            repacked.insert(pack.pack);
        }
        packer.finish().await?;
        packer.merge().await?;
        pruned.repacked_packs += repacked.len() as u64;
        Ok(repacked)
    }
}

/// Whether some, but little, of a pack is needed.
fn is_sparse(pack: &PackIndex, needed: &HashSet<ChunkId>) -> bool {
    let of = pack.chunks.iter().filter(|chunk| needed.contains(&chunk.id));
    let bytes: u64 = of.map(|chunk| u64::from(chunk.bytes)).sum();
    bytes > 0 && bytes < pack.bytes() / NEEDED_DIVISOR
}
