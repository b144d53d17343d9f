//! Reads all indexes of a tenant: which chunks the store has, and where.

use crate::crypto::keys::{ChunkId, Tag};
use crate::error::Error;
use crate::format::index::{self, INDEX_BYTES_MAX, PackIndex};
use crate::transfer::repository::{READS_AT_ONCE, TenantRepository};
use futures_util::{StreamExt, TryStreamExt};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of chunks of one tenant, about 1 TiB: the index takes 200 MiB of memory.
const CHUNKS_MAX: usize = 2_000_000;
/// How often the indexes are read again because a push or a prune has replaced some.
const ATTEMPTS: usize = 5;
/// How many indexes are in memory at the same time; each can have 16 MiB.
const INDEXES_AT_ONCE: usize = 4;

/// An index object.
#[derive(Debug)]
pub(crate) struct NamedIndex {
    pub(crate) tag: Tag,
    pub(crate) doomed_at_ms: i64,
    pub(crate) packs: Arc<Vec<PackIndex>>,
}

/// Where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// Index into the packs.
    pub(crate) pack: u32,
    pub(crate) bytes: u32,
    pub(crate) offset: u32,
}

/// Where all chunks lie.
#[derive(Default)]
pub(crate) struct Locations {
    pub(crate) packs: Vec<Tag>,
    chunks: HashMap<ChunkId, Location>,
    /// Further places of chunks that lie in several packs, because the store had lost one of these, or seemed
    /// to.
    others: HashMap<ChunkId, Vec<Location>>,
}

impl Locations {
    fn add(&mut self, pack: &PackIndex) -> Result<(), Error> {
        let number = u32::try_from(self.packs.len()).map_err(Error::fault)?;
        self.packs.push(pack.pack);
        for (offset, chunk) in pack.located() {
            let offset = u32::try_from(offset).map_err(Error::fault)?;
            let location = Location { pack: number, bytes: chunk.bytes, offset };
            // Indexes first, then those of doomed packs, which must not win.
            match self.chunks.entry(chunk.id) {
                Entry::Vacant(vacant) => drop(vacant.insert(location)),
                Entry::Occupied(_) => self.others.entry(chunk.id).or_default().push(location),
            }
        }
        check_count(self.chunks.len())
    }

    /// Where else a chunk lies.
    pub(crate) fn others(&self, id: &ChunkId) -> &[Location] {
        self.others.get(id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn find(&self, id: &ChunkId) -> Option<Location> {
        self.chunks.get(id).copied()
    }
}

fn check_count(chunks: usize) -> Result<(), Error> {
    match chunks > CHUNKS_MAX {
        true => {
            let limit = format!("{CHUNKS_MAX} chunks (about 1 TiB)");
            Err(Error::TooLarge { what: "the tenant's snapshots in the store", limit })
        }
        false => Ok(()),
    }
}

impl TenantRepository {
    /// The chunks that a push need not send: those of packs that are not doomed, and that the store lists with
    /// their length. A store can lose what it had acknowledged; then the chunks are sent again.
    pub(crate) async fn known_chunks(&self) -> Result<HashSet<ChunkId>, Error> {
        for _ in 0..ATTEMPTS {
            let listed = self.objects.list(&self.names.packs()).await?;
            let listed: HashMap<Tag, u64> =
                listed.into_iter().map(|one| (one.tag, one.bytes)).collect();
            let mut known = HashSet::new();
            let mut lost = 0_u64;
            let mut add = |index: NamedIndex| {
                for pack in index.packs.iter() {
                    match listed.get(&pack.pack) == Some(&pack.bytes()) {
                        true => known.extend(pack.chunks.iter().map(|one| one.id)),
                        // Or it was pushed a moment ago.
                        false => lost += 1,
                    }
                }
                check_count(known.len())
            };
            if self.each_index(false, &mut add).await? {
                if lost > 0 {
                    tracing::warn!(
                        packs = lost,
                        "the store does not list packs that it had; what is needed of them is sent again"
                    );
                }
                return Ok(known);
            }
        }
        Err(changing())
    }

    /// Where chunks lie, also those of doomed packs.
    pub(crate) async fn locations(&self) -> Result<Locations, Error> {
        for _ in 0..ATTEMPTS {
            let mut found = Locations::default();
            let mut add =
                |index: NamedIndex| index.packs.iter().try_for_each(|pack| found.add(pack));
            // In this order: a prune writes the mark of a doomed pack before it changes the index.
            if self.each_index(false, &mut add).await? && self.each_index(true, &mut add).await? {
                return Ok(found);
            }
        }
        Err(changing())
    }

    /// All index objects, or all marks of doomed packs.
    pub(crate) async fn indexes(&self, doomed: bool) -> Result<Vec<NamedIndex>, Error> {
        for _ in 0..ATTEMPTS {
            let mut all = Vec::new();
            let mut chunks = 0;
            let mut add = |index: NamedIndex| {
                chunks += index.packs.iter().map(|pack| pack.chunks.len()).sum::<usize>();
                all.push(index);
                check_count(chunks)
            };
            if self.each_index(doomed, &mut add).await? {
                return Ok(all);
            }
        }
        Err(changing())
    }

    /// Passes every index object on. Returns `false` if one was replaced in between.
    async fn each_index(
        &self,
        doomed: bool,
        add: &mut impl FnMut(NamedIndex) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let directory = if doomed { self.names.all_doomed() } else { self.names.indexes() };
        let listed = self.objects.list(&directory).await?;
        // Small ones, which are the rule, take little memory.
        let small = listed.iter().all(|one| one.bytes < 1 << 20);
        let at_once = if small { READS_AT_ONCE } else { INDEXES_AT_ONCE };
        let read = listed.into_iter().map(|one| async move {
            let name = match doomed {
                true => self.names.doomed(&one.tag),
                false => self.names.index(&one.tag),
            };
            // Marks are written again when a pack is doomed again; index objects never change.
            if !doomed && let Some(packs) = self.read_indexes.get(&name) {
                return Ok::<_, Error>(Some(NamedIndex { tag: one.tag, doomed_at_ms: 0, packs }));
            }
            let Some(sealed) = self.objects.get(&name, INDEX_BYTES_MAX).await? else {
                return Ok(None);
            };
            let read = index::open(&self.keys, &name, &sealed)?;
            let doomed_at_ms = read.doomed_at_ms;
            let packs = Arc::new(read.packs);
            if !doomed {
                self.read_indexes.put(name, Arc::clone(&packs));
            }
            Ok(Some(NamedIndex { tag: one.tag, doomed_at_ms, packs }))
        });
        let mut read = futures_util::stream::iter(read).buffer_unordered(at_once);
        while let Some(index) = read.try_next().await? {
            match index {
                Some(index) => add(index)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn changing() -> Error {
    Error::Store("its indexes change too quickly; try again".to_owned())
}
