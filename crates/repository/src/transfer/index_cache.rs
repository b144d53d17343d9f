//! Index objects that were read before. Their content never changes, so a push or pull reads only those
//! that are new since the last one, even if a tenant has thousands of small snapshots.

use crate::format::index::PackIndex;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of chunks in each of the two generations: both take at most 20 MiB of memory.
const CHUNKS_MAX: usize = 250_000;
/// What an object counts besides its chunks, for its name and its packs.
const OBJECT_CHUNKS: usize = 8;

/// The packs of index objects by name. What was not used for the longest time is dropped first, by
/// generations.
#[derive(Default)]
pub(crate) struct IndexCache(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    recent: HashMap<String, Arc<Vec<PackIndex>>>,
    /// Chunks in `recent`.
    chunks: usize,
    older: HashMap<String, Arc<Vec<PackIndex>>>,
}

impl IndexCache {
    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Vec<PackIndex>>> {
        let mut cache = self.lock();
        if let Some(packs) = cache.recent.get(name) {
            return Some(Arc::clone(packs));
        }
        let (name, packs) = cache.older.remove_entry(name)?;
        cache.add(name, Arc::clone(&packs));
        Some(packs)
    }

    /// Drops everything, so that all index objects are read from the store again.
    pub(crate) fn clear(&self) {
        *self.lock() = Generations::default();
    }

    pub(crate) fn put(&self, name: String, packs: Arc<Vec<PackIndex>>) {
        self.lock().add(name, packs);
    }
}

impl Generations {
    fn add(&mut self, name: String, packs: Arc<Vec<PackIndex>>) {
        let chunks = packs.iter().map(|pack| pack.chunks.len()).sum::<usize>() + OBJECT_CHUNKS;
        if chunks > CHUNKS_MAX {
            return;
        }
        if self.chunks + chunks > CHUNKS_MAX {
            self.older = std::mem::take(&mut self.recent);
            self.chunks = 0;
        }
        if self.recent.insert(name, packs).is_none() {
            self.chunks += chunks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::keys::ChunkId;
    use crate::format::index::PackedChunk;

    fn packs(chunks: usize) -> Arc<Vec<PackIndex>> {
        let chunk = PackedChunk { id: ChunkId([7; 32]), bytes: 1 };
        Arc::new(vec![PackIndex { pack: Default::default(), chunks: vec![chunk; chunks] }])
    }

    #[test]
    fn what_was_used_last_is_kept_and_the_size_is_limited() {
        let cache = IndexCache::default();
        let quarter = CHUNKS_MAX / 4;
        for number in 0..40 {
            cache.put(number.to_string(), packs(quarter));
            assert!(cache.get("0").is_some(), "it is in use");
            let held = cache.lock();
            assert!(held.chunks <= CHUNKS_MAX && held.recent.len() + held.older.len() <= 7);
        }
        assert!(cache.get("39").is_some() && cache.get("1").is_none());
        cache.put("large".to_owned(), packs(CHUNKS_MAX));
        assert!(cache.get("large").is_none(), "one that is too large drops no other");
        assert!(cache.get("39").is_some());
    }
}
