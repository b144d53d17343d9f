//! Makes layers ready: fetch, unpack, verify the digests, and only then move into place.
//!
//! A layer that arrives is held from before it is looked for until its image is recorded or has
//! failed, and one that a sandbox is being created from is pinned. The garbage collector reads the
//! records under the lock that also guards new images, so it removes nothing that is about to be
//! used.

use super::from_peers::fetch_from_node;
use super::images::{Inner, LayerHold};
use super::progress::LayerFrom;
use super::quota::Allowance;
use crate::disk::staging::StagedDirectory;
use crate::error::Error;
use crate::manifest::Blob;
use crate::overlay::merge::merge_layers;
use crate::reference::Digest;
use crate::registry::client::Repository;
use crate::store::layer::{self, make_tree};
use crate::unpack::byte_stream::ChannelReader;
use crate::unpack::tar_split::TarSplitWriter;
use crate::unpack::{self, Budget, LayerStats};
use bytes::Bytes;
use isolet_metrics::ImageMetrics;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedMutexGuard, mpsc};

/// Maximum number of layers that a sandbox mounts. Lower layers of an image with more are merged: an
/// overlay looks a missing path up in every layer.
pub(crate) const STACK_MAX: usize = 24;
/// Chunks that are buffered between the connection and the unpacking thread.
const CHUNKS_MAX: usize = 16;

/// Where a layer comes from.
pub(crate) enum LayerSource<'a> {
    Registry(&'a Repository<'a>, Blob),
    /// Another node, which has the image.
    Node(String),
    /// A file, with its digest and size if the archive names them.
    File(PathBuf, Option<Blob>),
}

/// One layer of an image, to be prepared.
pub(crate) struct RequestedLayer<'a> {
    pub(crate) diff_id: Digest,
    pub(crate) source: LayerSource<'a>,
    /// Other nodes that can send it, tried before the source.
    pub(crate) holders: Vec<String>,
}

/// The prepared layers of an image.
#[derive(Default)]
pub(crate) struct ReadyLayers {
    /// Their names below `layers`, the lowest layer first, without duplicates.
    pub(crate) names: Vec<String>,
    pub(crate) stats: LayerStats,
    /// Must be dropped only after the image is recorded.
    pub(crate) held: Vec<LayerHold>,
}

/// What happens to a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LayerEvent {
    /// It comes from there.
    From(LayerFrom),
    /// This many bytes have been downloaded so far.
    Bytes(u64),
    /// It is on the disk.
    Ready,
}

/// Called with the index of a layer.
pub(crate) type ProgressFn<'a> = &'a (dyn Fn(usize, LayerEvent) + Send + Sync);

impl Inner {
    /// The limits of one layer. `most` is what is left of a quota, in bytes.
    pub(super) fn budget(&self, most: Option<u64>) -> Budget {
        let limits = self.config.limits;
        let bytes = limits.unpacked_mib << 20;
        Budget {
            compressed_bytes: limits.compressed_mib << 20,
            bytes: most.map_or(bytes, |most| most.min(bytes)),
            entries: limits.entries,
        }
    }

    /// Keeps a layer from being collected.
    pub(super) fn hold_layer(&self, name: &str) -> LayerHold {
        entry_lock(&self.layers_in_use, name.to_owned())
    }

    /// Waits until this tenant does not unpack the layer elsewhere. Other tenants may unpack it in
    /// parallel: a download that is slow for one may be fast for another.
    pub(super) async fn lock_layer(&self, tenant: &str, name: &str) -> OwnedMutexGuard<()> {
        entry_lock(&self.layer_locks, (tenant.to_owned(), name.to_owned())).lock_owned().await
    }

    /// Adds the statistics of a layer to those of its image.
    fn add_stats(&self, all: &mut LayerStats, stats: &LayerStats) -> Result<(), Error> {
        all.bytes = all.bytes.saturating_add(stats.bytes);
        all.entries += stats.entries;
        all.skipped += stats.skipped;
        all.unmapped_owners += stats.unmapped_owners;
        let max_mib = self.config.limits.unpacked_mib;
        if all.bytes > max_mib << 20 {
            return Err(Error::large("files of an image", format!("{max_mib} MiB")));
        }
        Ok(())
    }

    /// Prepares all layers of an image, and holds them.
    pub(crate) async fn layers(
        &self,
        tenant: &str,
        requested: &[RequestedLayer<'_>],
        on_progress: ProgressFn<'_>,
    ) -> Result<ReadyLayers, Error> {
        let low = if requested.len() > STACK_MAX { requested.len() + 1 - STACK_MAX } else { 0 };
        let mut names = Vec::with_capacity(requested.len());
        let mut all_held = Vec::with_capacity(requested.len());
        let mut all = LayerStats::default();
        if low > 0 {
            let (name, stats, held) =
                self.merged_layer(tenant, &requested[..low], on_progress).await?;
            self.add_stats(&mut all, &stats)?;
            names.push(name);
            all_held.push(held);
        }
        let rest = self.each_layer(tenant, requested, low, on_progress).await?;
        self.add_stats(&mut all, &rest.stats)?;
        names.extend(rest.names);
        all_held.extend(rest.held);
        // A layer that occurs twice is mounted once.
        let mut seen = HashSet::new();
        let mut once: Vec<_> =
            names.into_iter().rev().filter(|name| seen.insert(name.clone())).collect();
        once.reverse();
        Ok(ReadyLayers { names: once, stats: all, held: all_held })
    }

    /// Prepares the layers from the index `first` on, and merges none.
    pub(super) async fn each_layer(
        &self,
        tenant: &str,
        requested: &[RequestedLayer<'_>],
        first: usize,
        on_progress: ProgressFn<'_>,
    ) -> Result<ReadyLayers, Error> {
        // Two in parallel: one is fetched while the other is unpacked.
        use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
        let mut layers = Vec::new();
        for (index, layer) in requested.iter().enumerate().skip(first) {
            layers.push(self.layer(tenant, layer, index, on_progress).boxed());
        }
        let mut ready = ReadyLayers::default();
        let mut made = stream::iter(layers).buffered(2);
        while let Some((name, stats, held)) = made.try_next().await? {
            self.add_stats(&mut ready.stats, &stats)?;
            ready.names.push(name);
            ready.held.push(held);
        }
        drop(made);
        Ok(ready)
    }

    async fn layer(
        &self,
        tenant: &str,
        requested: &RequestedLayer<'_>,
        index: usize,
        on_progress: ProgressFn<'_>,
    ) -> Result<(String, LayerStats, LayerHold), Error> {
        let name = requested.diff_id.hex().to_owned();
        let held = self.hold_layer(&name);
        let _lock = self.lock_layer(tenant, &name).await;
        let known = self.store.layer(&name);
        if let Some(stats) = &known
            && self.store.has_proof(&name, tenant)
        {
            on_progress(index, LayerEvent::From(LayerFrom::Disk));
            on_progress(index, LayerEvent::Ready);
            return Ok((name, stats.clone(), held));
        }
        let copied =
            self.layer_of_peers(tenant, requested, known.as_ref(), index, on_progress).await?;
        let (stats, staged) = match copied {
            Some(copied) => copied,
            None => {
                let staged = if known.is_some() { None } else { Some(self.store.staging.stage()?) };
                self.unpack(tenant, requested, staged, true, index, on_progress).await?
            }
        };
        let _reserved = match self.reserve(tenant, stats.bytes).await {
            Ok(reserved) => reserved,
            Err(error) => {
                discard(staged).await;
                return Err(error);
            }
        };
        if let Some(staged) = staged {
            self.install(staged, &name, &stats, &held).await?;
        }
        self.store.record_proof(&name, tenant)?;
        on_progress(index, LayerEvent::Ready);
        Ok((name, stats, held))
    }

    /// Moves a layer into its place, and flushes it to the disk. If another tenant has installed it
    /// before, that copy stays, since sandboxes may use it.
    pub(super) async fn install(
        &self,
        staged: StagedDirectory,
        name: &str,
        stats: &LayerStats,
        held: &LayerHold,
    ) -> Result<(), Error> {
        let placing = Arc::clone(held).lock_owned().await;
        let store = Arc::clone(&self.store);
        let name = name.to_owned();
        let stats = stats.clone();
        let place = move || {
            let _placing = placing;
            if store.layer(&name).is_some() {
                return Ok(());
            }
            store.install(&staged, &name, &stats)
        };
        blocking(place).await
    }

    /// Prepares the lower layers of an image with many layers, merged into one.
    async fn merged_layer(
        &self,
        tenant: &str,
        requested: &[RequestedLayer<'_>],
        on_progress: ProgressFn<'_>,
    ) -> Result<(String, LayerStats, LayerHold), Error> {
        let ids: Vec<&str> = requested.iter().map(|layer| layer.diff_id.hex()).collect();
        let name = Digest::of(ids.join("\n").as_bytes()).hex().to_owned();
        let held = self.hold_layer(&name);
        let _lock = self.lock_layer(tenant, &name).await;
        let known = self.store.layer(&name);
        if let Some(stats) = &known
            && self.store.has_proof(&name, tenant)
        {
            for index in 0..requested.len() {
                on_progress(index, LayerEvent::From(LayerFrom::Disk));
                on_progress(index, LayerEvent::Ready);
            }
            return Ok((name, stats.clone(), held));
        }
        let mut base = None;
        let mut all = LayerStats::default();
        for (index, layer) in requested.iter().enumerate() {
            // If the merged layer exists, its parts are only verified: sandboxes may use it.
            let stage = if known.is_some() { None } else { Some(self.store.staging.stage()?) };
            // What is left of it after the merge does not make its archive.
            let unpacked = self.unpack(tenant, layer, stage, false, index, on_progress).await;
            let (stats, staged) = match unpacked {
                Ok(done) => done,
                Err(error) => {
                    discard(base).await;
                    return Err(error);
                }
            };
            if let Err(error) = self.add_stats(&mut all, &stats) {
                discard(base).await;
                discard(staged).await;
                return Err(error);
            }
            on_progress(index, LayerEvent::Ready);
            base = match (base, staged) {
                (Some(base), Some(top)) => {
                    let thread_slot = self.slots.work().await?;
                    let merge = move || {
                        let _thread_slot = thread_slot;
                        merge_staged(base, &top)
                    };
                    Some(blocking(merge).await?)
                }
                (None, staged) => staged,
                (base, None) => base,
            };
        }
        let _reserved = match self.reserve(tenant, all.bytes).await {
            Ok(reserved) => reserved,
            Err(error) => {
                discard(base).await;
                return Err(error);
            }
        };
        if known.is_none() {
            let base = base.ok_or_else(|| Error::bad("it has no layers"))?;
            self.install(base, &name, &all, &held).await?;
        }
        self.store.record_proof(&name, tenant)?;
        Ok((name, all, held))
    }

    /// Reads a layer to its end, unpacks it if a directory is given, and verifies the digests. With
    /// `records`, its archive is recorded for other nodes.
    pub(super) async fn unpack(
        &self,
        tenant: &str,
        requested: &RequestedLayer<'_>,
        staged: Option<StagedDirectory>,
        records: bool,
        index: usize,
        on_progress: ProgressFn<'_>,
    ) -> Result<(LayerStats, Option<StagedDirectory>), Error> {
        match &requested.source {
            LayerSource::Registry(..) => {
                on_progress(index, LayerEvent::From(LayerFrom::Registry));
            }
            LayerSource::Node(node) => {
                on_progress(index, LayerEvent::From(LayerFrom::Node(node.clone())));
            }
            LayerSource::File(..) => {}
        }
        // A file needs no download, so that it needs no slot for one.
        let layer_slot = match &requested.source {
            LayerSource::Registry(..) | LayerSource::Node(_) => {
                Some(self.slots.layer(tenant).await?)
            }
            LayerSource::File(..) => None,
        };
        let thread_slot = self.slots.work().await?;
        let allowance = self.allowance(tenant).await?;
        let mut budget = self.budget(allowance.map(Allowance::bytes));
        if let LayerSource::Node(_) = &requested.source {
            // Compressed differently than in the registry.
            budget.compressed_bytes =
                budget.bytes.saturating_add(budget.entries.saturating_mul(1024));
        }
        let split = match &staged {
            Some(staged) if records => self.split_writer(staged)?,
            _ => None,
        };
        let limit = self.budget(None).bytes;
        let free_space = Arc::clone(&self.free_space);
        let diff_id = requested.diff_id.clone();
        let expected = match &requested.source {
            LayerSource::Registry(_, part) => Some(part.clone()),
            LayerSource::Node(_) => None,
            LayerSource::File(_, part) => part.clone(),
        };
        // A failed directory is removed on the thread that made it.
        let work = move |from: Box<dyn std::io::Read + Send>| {
            let _layer_slot = layer_slot;
            let tree = staged.as_ref().map(|staged| make_tree(&staged.0)).transpose()?;
            let to = tree.as_ref().map(AsFd::as_fd);
            let (stats, digests) = unpack::layer(from, to, budget, &free_space, split)?;
            digests.verify_layer(expected.as_ref(), &diff_id)?;
            if let Some(staged) = &staged {
                layer::keep_split(staged, digests.is_recorded)?;
            }
            Ok::<_, Error>((stats, staged))
        };
        let unpacked = match &requested.source {
            LayerSource::Registry(repository, part) => {
                let (to, from) = mpsc::channel(CHUNKS_MAX);
                let unpacking =
                    blocking(move || work(Box::new(ChannelReader::new(from, thread_slot))));
                let on_bytes = |done| on_progress(index, LayerEvent::Bytes(done));
                let fetching = fetch(repository, part, to, &self.metrics, on_bytes);
                tokio::join!(unpacking, fetching).0
            }
            LayerSource::Node(node) => {
                let peers = self.peers.get().ok_or_else(|| Error::bad("there is no fleet"))?;
                let (to, from) = mpsc::channel(CHUNKS_MAX);
                let unpacking =
                    blocking(move || work(Box::new(ChannelReader::new(from, thread_slot))));
                let on_bytes = |done| on_progress(index, LayerEvent::Bytes(done));
                let layer = &requested.diff_id;
                let fetching =
                    fetch_from_node(&**peers, node, tenant, layer, to, &self.metrics, on_bytes);
                let unpacked = tokio::join!(unpacking, fetching).0;
                let counter = match &unpacked {
                    Ok(_) => &self.metrics.copied_layers,
                    Err(_) => &self.metrics.failed_layers,
                };
                counter.inc();
                unpacked
            }
            LayerSource::File(path, _) => {
                let path = path.clone();
                let unpacking = move || {
                    let _thread_slot = thread_slot;
                    work(Box::new(std::fs::File::open(path)?))
                };
                blocking(unpacking).await
            }
        };
        unpacked.map_err(|error| match allowance {
            Some(allowance) => allowance.explain(error, limit),
            None => error,
        })
    }

    /// Records the archive of a layer that is unpacked, if there are nodes that it may be sent to.
    pub(super) fn split_writer(
        &self,
        staged: &StagedDirectory,
    ) -> Result<Option<TarSplitWriter>, Error> {
        let path = layer::split_path(&staged.0);
        self.peers.get().map(|_| TarSplitWriter::create(&path)).transpose()
    }
}

impl RequestedLayer<'_> {
    /// The same layer from another node.
    pub(super) fn at_node(&self, node: &str) -> Self {
        Self {
            diff_id: self.diff_id.clone(),
            source: LayerSource::Node(node.to_owned()),
            holders: Vec::new(),
        }
    }
}

/// Removes a staged directory on a blocking thread, since that may take long.
pub(crate) async fn discard(staged: Option<StagedDirectory>) {
    let _ = tokio::task::spawn_blocking(move || drop(staged)).await;
}

/// Returns the lock of this name, and removes unused locks.
fn entry_lock<K: Eq + Hash>(locks: &Mutex<HashMap<K, LayerHold>>, name: K) -> LayerHold {
    let mut locks = locks.lock().unwrap_or_else(PoisonError::into_inner);
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    Arc::clone(locks.entry(name).or_default())
}

fn merge_staged(base: StagedDirectory, top: &StagedDirectory) -> Result<StagedDirectory, Error> {
    let open = |staged: &StagedDirectory| {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        rustix::fs::open(staged.0.join("tree"), flags, rustix::fs::Mode::empty())
    };
    merge_layers(open(&base)?.as_fd(), open(top)?.as_fd())?;
    Ok(base)
}

/// Sends the bytes of a blob to the unpacking thread, and `None` at the end.
async fn fetch(
    repository: &Repository<'_>,
    part: &Blob,
    to: mpsc::Sender<Result<Option<Bytes>, Error>>,
    metrics: &ImageMetrics,
    on_bytes: impl Fn(u64),
) {
    let come = async {
        let mut body = repository.blob(&part.digest.to_string()).await?;
        let mut done = 0;
        while let Some(piece) = repository.chunk(&mut body).await? {
            done += piece.len() as u64;
            metrics.pulled_bytes.inc_by(piece.len() as u64);
            if done > part.bytes {
                let limit = format!("the {} bytes that its manifest names", part.bytes);
                return Err(Error::large("a layer", limit));
            }
            on_bytes(done);
            // The unpacking thread has failed, and returns that error.
            if to.send(Ok(Some(piece))).await.is_err() {
                return Ok(());
            }
        }
        let cut = || Error::bad(format!("a layer of {} bytes ended after {done}", part.bytes));
        if done < part.bytes { Err(cut()) } else { Ok(()) }
    };
    let end = come.await.map(|()| None);
    let _ = to.send(end).await;
}

/// Runs work on a thread of the blocking pool.
pub(crate) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Disk(format!("unpacking failed with a panic: {error}")))?
}
