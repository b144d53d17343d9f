//! Reads everything that the repository has, and says what is not what was written.

use crate::crypto::keys::{ChunkId, Tag};
use crate::error::Error;
use crate::format::chunk;
use crate::format::index::{self, INDEX_BYTES_MAX, PACK_BYTES_MAX, PackIndex};
use crate::format::names::TENANTS;
use crate::transfer::known::Locations;
use crate::transfer::repository::{Repository, TenantRepository};
use futures_util::{StreamExt, TryStreamExt};
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// How many packs are read at the same time. Each takes its length of memory, usually 16 MiB.
const PACKS_AT_ONCE: usize = 4;
/// Maximum number of damages that are reported; all are counted.
const DAMAGES_MAX: usize = 1000;

/// What a deep check has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeepCheck {
    /// Tenants with objects in the repository.
    pub tenants: u64,
    /// Their snapshots.
    pub snapshots: u64,
    /// Packs that were read.
    pub packs: u64,
    /// The size of these, in bytes.
    pub bytes: u64,
    /// Objects that are missing or not what was written, and snapshots that cannot be pulled.
    pub damaged: u64,
    /// The first of these, as text for people.
    pub damages: Vec<String>,
}

impl DeepCheck {
    fn report(&mut self, error: &Error) -> Result<(), Error> {
        if !error.is_uncertain() || matches!(error, Error::Store(_)) {
            return Err(error.clone());
        }
        self.add(error.to_string());
        Ok(())
    }

    fn add(&mut self, damage: String) {
        self.damaged += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(damage);
        }
    }
}

impl Repository {
    /// Reads all objects of all tenants in full. Servers may push while it runs; what a prune deletes at the same
    /// time may be reported.
    ///
    /// # Errors
    /// Errors of the store. Damage is part of the result.
    pub async fn check_deep(&self) -> Result<DeepCheck, Error> {
        let mut check = DeepCheck::default();
        for tag in self.objects.list_directories(TENANTS).await? {
            check.tenants += 1;
            self.tenant_with(String::new(), &tag).check_deep(&mut check).await?;
        }
        Ok(check)
    }
}

impl TenantRepository {
    async fn check_deep(&self, check: &mut DeepCheck) -> Result<(), Error> {
        // Snapshots first: the chunks of each are in an index by then.
        let snapshots = self.objects.list(&self.names.snapshots()).await?;
        let mut packs: Vec<PackIndex> = Vec::new();
        for doomed in [false, true] {
            packs.extend(self.read_all_indexes(doomed, check).await?);
        }
        let good = self.check_packs(packs, check).await?;
        let locations = self.locations().await.map(Arc::new);
        for one in snapshots {
            check.snapshots += 1;
            let name = self.names.snapshot(&one.tag);
            let checked = self.check_snapshot(&name, &one.tag, &good, &locations, check).await;
            if let Err(error) = checked {
                check.report(&error)?;
            }
        }
        Ok(())
    }

    /// The packs of all index objects, or of all marks, that can be read.
    async fn read_all_indexes(
        &self,
        doomed: bool,
        check: &mut DeepCheck,
    ) -> Result<Vec<PackIndex>, Error> {
        let directory = if doomed { self.names.all_doomed() } else { self.names.indexes() };
        let mut packs = Vec::new();
        for one in self.objects.list(&directory).await? {
            let name = match doomed {
                true => self.names.doomed(&one.tag),
                false => self.names.index(&one.tag),
            };
            let read = match self.objects.get(&name, INDEX_BYTES_MAX).await {
                // A push or a prune has replaced it.
                Ok(None) => continue,
                Ok(Some(sealed)) => index::open(&self.keys, &name, &sealed),
                Err(error) => Err(error),
            };
            match read {
                Ok(index) => packs.extend(index.packs),
                Err(error) => check.report(&error)?,
            }
        }
        Ok(packs)
    }

    /// Reads packs, and returns the chunks that are what was written.
    async fn check_packs(
        &self,
        packs: Vec<PackIndex>,
        check: &mut DeepCheck,
    ) -> Result<HashSet<ChunkId>, Error> {
        let mut good = HashSet::new();
        let checked = futures_util::stream::iter(packs).map(|pack| self.check_pack(pack));
        let mut checked = pin!(checked.buffer_unordered(PACKS_AT_ONCE));
        while let Some(CheckedPack { bytes, chunks, damage }) = checked.try_next().await? {
            check.packs += 1;
            check.bytes += bytes;
            good.extend(chunks);
            if let Some(error) = damage {
                check.report(&error)?;
            }
        }
        Ok(good)
    }

    async fn check_pack(&self, pack: PackIndex) -> Result<CheckedPack, Error> {
        let name = self.names.pack(&pack.pack);
        let max = usize::try_from(PACK_BYTES_MAX).map_err(Error::fault)?;
        let damaged = |error| CheckedPack { bytes: 0, chunks: Vec::new(), damage: Some(error) };
        let content = match self.objects.get(&name, max).await {
            Ok(Some(content)) => content,
            Ok(None) => return Ok(damaged(Error::damaged(&name, "it does not exist"))),
            Err(error @ Error::Damaged { .. }) => return Ok(damaged(error)),
            Err(error) => return Err(error),
        };
        let keys = Arc::clone(&self.keys);
        let checking = move || {
            let bytes = content.len() as u64;
            let is_good = |(offset, chunk): &(u64, &crate::format::index::PackedChunk)| {
                let start = usize::try_from(*offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(chunk.bytes as usize);
                let sealed = content.get(start..end);
                sealed.is_some_and(|sealed| chunk::open(&keys, &chunk.id, sealed).is_some())
            };
            let chunks: Vec<ChunkId> =
                pack.located().filter(is_good).map(|(_, chunk)| chunk.id).collect();
            let wrong = pack.chunks.len() - chunks.len();
            let damage = (wrong > 0).then(|| {
                let count = pack.chunks.len();
                let reason = format!("{wrong} of its {count} chunks are not what was pushed");
                Error::damaged(&name, reason)
            });
            CheckedPack { bytes, chunks, damage }
        };
        spawn_blocking(checking).await.map_err(Error::fault)
    }

    /// Checks that all chunks of a snapshot are good.
    async fn check_snapshot(
        &self,
        name: &str,
        tag: &Tag,
        good: &HashSet<ChunkId>,
        locations: &Result<Arc<Locations>, Error>,
        check: &mut DeepCheck,
    ) -> Result<(), Error> {
        // One that was deleted since needs nothing.
        let Some(manifest) = self.read_manifest(name).await? else { return Ok(()) };
        if self.keys.snapshot_tag(&manifest.id) != *tag {
            return Err(Error::damaged(name, "it is that of another snapshot"));
        }
        let lists = manifest.lists(name)?;
        let cannot = |reason: &str| {
            let id = &manifest.id;
            let tenant = &manifest.tenant;
            format!("snapshot {id} of tenant {tenant} cannot be pulled: {reason}")
        };
        if !lists.iter().all(|id| good.contains(id)) {
            check.add(cannot("the list of its chunks is missing or damaged"));
            return Ok(());
        }
        let locations = locations.as_ref().map_err(Error::clone)?;
        let mut text = Vec::new();
        let mut missing = 0_u64;
        let mut fetched = pin!(self.fetch(locations, &lists, None)?);
        while let Some(list) = fetched.try_next().await? {
            text.extend(list);
            let whole = text.len() - text.len() % 32;
            let ids = text[..whole].chunks_exact(32);
            let ids = ids.filter_map(|id| Some(ChunkId(id.try_into().ok()?)));
            missing += ids.filter(|id| !good.contains(id)).count() as u64;
            text.drain(..whole);
        }
        if missing > 0 {
            check.add(cannot(&format!("{missing} of its chunks are missing or damaged")));
        }
        Ok(())
    }
}

/// A pack that was read.
struct CheckedPack {
    bytes: u64,
    /// The chunks that are what was written.
    chunks: Vec<ChunkId>,
    damage: Option<Error>,
}
