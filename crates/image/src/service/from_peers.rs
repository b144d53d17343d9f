//! Copies layers and images from other nodes.
//!
//! Which layers an image has, and whether the tenant may have it, is decided elsewhere: by the
//! registry, whose manifest and configuration each pull reads, or by the node that has the image under
//! a name of the tenant. The digest of each archive is compared with the one in the image, so a node
//! with a damaged disk cannot spread the damage.

use super::images::Inner;
use super::layers::{LayerEvent, LayerSource, ProgressFn, RequestedLayer, blocking};
use super::progress::{LayerFrom, LayerProgress, Phase, Progress};
use crate::disk::staging::StagedDirectory;
use crate::error::Error;
use crate::peers::{ImageHolder, ImagePeers, LayerHolder, PeerFailure, SentImage};
use crate::platform::Platform;
use crate::reference::{Digest, Reference};
use crate::store::Pin;
use crate::store::image::{HOST_LAYER, Image};
use crate::store::layer;
use crate::unpack::LayerStats;
use bytes::Bytes;
use futures_util::StreamExt;
use isolet_metrics::ImageMetrics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Nodes that are tried for one layer before the registry is.
const NODES_TRIED: usize = 2;
/// How long a node may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long a transfer may wait for the other node in all, beside the time that its bytes may take.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The slowest transfer, in bytes per second. A slower one is given up.
const RATE_MIN: u64 = 4 * 1024 * 1024;

impl Inner {
    /// The nodes that can send each of these layers to the tenant, for those that it cannot use here
    /// yet.
    pub(super) async fn holders(
        &self,
        tenant: &str,
        image: &Digest,
        layers: &[Digest],
    ) -> Vec<LayerHolder> {
        let Some(peers) = self.peers.get() else { return Vec::new() };
        let usable = |digest: &&Digest| {
            let name = digest.hex();
            self.store.layer(name).is_some() && self.store.has_proof(name, tenant)
        };
        let missing: Vec<Digest> = layers.iter().filter(|one| !usable(one)).cloned().collect();
        if missing.is_empty() {
            return Vec::new();
        }
        peers.find_layers(tenant, image, &missing).await
    }

    /// Takes a layer from one of its holders. `None`: from none of them. A layer that is on the disk is
    /// not transferred: that the tenant has proven on the other node that it may read the layer is enough.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Disk`], [`Error::QuotaExceeded`]: what would also fail for a registry.
    pub(super) async fn layer_of_peers(
        &self,
        tenant: &str,
        requested: &RequestedLayer<'_>,
        known: Option<&LayerStats>,
        index: usize,
        on_progress: ProgressFn<'_>,
    ) -> Result<Option<(LayerStats, Option<StagedDirectory>)>, Error> {
        for node in requested.holders.iter().take(NODES_TRIED) {
            if let Some(stats) = known {
                on_progress(index, LayerEvent::From(LayerFrom::Disk));
                return Ok(Some((stats.clone(), None)));
            }
            let layer = requested.at_node(node);
            let staged = Some(self.store.staging.stage()?);
            let error = match self.unpack(tenant, &layer, staged, true, index, on_progress).await {
                Ok(done) => return Ok(Some(done)),
                Err(error) => error,
            };
            match error {
                Error::Full | Error::Disk(_) | Error::QuotaExceeded { .. } => return Err(error),
                error => {
                    tracing::warn!(layer = %requested.diff_id, node, %error, "a layer could not be copied from another node");
                }
            }
        }
        Ok(None)
    }

    /// Finds an image of the tenant, or of the tenant whose images are shared, on other nodes, and copies
    /// what this node lacks of it. `None`: no node has it.
    ///
    /// # Errors
    /// [`Error::NotCopied`], [`Error::Full`], [`Error::QuotaExceeded`], [`Error::Disk`].
    pub(super) async fn image_of_peers(
        &self,
        tenant: &str,
        reference: &Reference,
        progress: &watch::Sender<Progress>,
    ) -> Result<Option<(Arc<Image>, Pin)>, Error> {
        let Some(peers) = self.peers.get() else { return Ok(None) };
        let shared = self.config.shared.as_deref().filter(|shared| *shared != tenant);
        for owner in [Some(tenant), shared].into_iter().flatten() {
            let Some(holder) = peers.find_image(owner, reference).await else { continue };
            let bad = || self.not_copied(reference, &holder, "its digest is malformed");
            let digest = Digest::parse(&holder.digest).ok_or_else(bad)?;
            // A copy is recorded by its digest only: what a name stands for is decided where it was given.
            let exact = reference.at(&digest);
            if let Some((image, pin)) = self.store.find_and_pin(owner, &exact)
                && self.store.missing_layer(&image.root.layers).is_none()
            {
                return Ok(Some((image, pin)));
            }
            let copying = self.copy_image(&**peers, &holder, owner, &exact, progress);
            return copying.await.map(Some).map_err(|error| match error {
                error @ (Error::Full | Error::Disk(_) | Error::QuotaExceeded { .. }) => error,
                error @ Error::NotCopied { .. } => error,
                error => self.not_copied(reference, &holder, &error.to_string()),
            });
        }
        Ok(None)
    }

    fn not_copied(&self, reference: &Reference, holder: &ImageHolder, reason: &str) -> Error {
        Error::NotCopied {
            image: reference.to_string(),
            node: holder.node.clone(),
            reason: reason.to_owned(),
        }
    }

    /// Records an image whose layers are on the disk, by its digest.
    async fn record_copy(
        &self,
        image: Image,
        owner: &str,
        exact: &Reference,
        sessions: Option<Bytes>,
    ) -> Result<(Arc<Image>, Pin), Error> {
        if !image.root.is_on_host() {
            let store = Arc::clone(&self.store);
            let shell = image.shell;
            blocking(move || store.init_layers.make(&store.staging, shell)).await?;
        }
        let from = image.origin(owner);
        let image = Image {
            names: BTreeMap::new(),
            imported: BTreeMap::new(),
            from_snapshot: BTreeMap::new(),
            tagged: BTreeMap::new(),
            pulled_at_ms: isolet_clock::now_ms(),
            ..image
        };
        self.store.record(image, owner, &[exact.to_string()], from, sessions.as_deref())
    }

    async fn copy_image(
        &self,
        peers: &dyn ImagePeers,
        holder: &ImageHolder,
        owner: &str,
        exact: &Reference,
        progress: &watch::Sender<Progress>,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let failed = |failure: PeerFailure| self.not_copied(exact, holder, &failure.0);
        let text = peers.image(&holder.node, owner, exact).await.map_err(failed)?;
        let sent = SentImage::read(&text).map_err(failed)?;
        let sessions = sent.sessions().map_err(failed)?;
        let SentImage { image, layer_bytes, .. } = sent;
        check(&image, &holder.digest).map_err(failed)?;
        let wanted = layers_of(&image, &holder.node);
        let sizes = std::iter::zip(&image.root.layers, layer_bytes);
        let sizes = sizes.filter(|(path, _)| layer::name(path).is_some()).map(|(_, bytes)| bytes);
        progress.send_modify(|now| {
            now.phase = Phase::Layers;
            let layers = std::iter::zip(&wanted, sizes);
            let layers =
                layers.map(|(one, bytes)| LayerProgress::new(one.diff_id.to_string(), bytes));
            now.layers = layers.collect();
        });
        let on_progress = |index: usize, event: LayerEvent| {
            progress.send_modify(|now| now.note(index, event));
        };
        let ready = self.each_layer(owner, &wanted, 0, &on_progress).await?;
        progress.send_modify(|now| now.phase = Phase::Finishing);
        let done = self.record_copy(image, owner, exact, sessions).await?;
        drop(ready);
        tracing::info!(image = %exact, tenant = owner, node = holder.node, "image copied from another node");
        Ok(done)
    }
}

/// The layers of an image, to be copied from a node.
fn layers_of(image: &Image, node: &str) -> Vec<RequestedLayer<'static>> {
    let names = image.root.layers.iter().filter_map(|path| layer::name(path));
    names
        .filter_map(|name| Digest::parse(&format!("sha256:{name}")))
        .map(|diff_id| RequestedLayer {
            diff_id,
            source: LayerSource::Node(node.to_owned()),
            holders: vec![node.to_owned()],
        })
        .collect()
}

/// Checks that sandboxes can be made of an image that another node has sent.
fn check(image: &Image, digest: &str) -> Result<(), PeerFailure> {
    let bad = |reason: &str| Err(PeerFailure(format!("it sent an image that {reason}")));
    if image.digest != digest {
        return bad("has another digest");
    }
    if image.platform != Platform::own().to_string() {
        return bad("is of another platform");
    }
    // Reading the image has refused layers and workspaces elsewhere. Of the init layers, this server
    // makes only that of the shell.
    let init_layer = image.shell.init_layer();
    let known =
        |path: &String| path == HOST_LAYER || *path == init_layer || layer::name(path).is_some();
    if !image.root.layers.iter().all(known) {
        return bad("has a layer with an unknown name");
    }
    Ok(())
}

/// Sends the archive of a layer that another node sends to the unpacking thread, and `None` at the end.
pub(super) async fn fetch_from_node(
    peers: &dyn ImagePeers,
    node: &str,
    tenant: &str,
    layer: &Digest,
    to: mpsc::Sender<Result<Option<Bytes>, Error>>,
    metrics: &ImageMetrics,
    on_bytes: impl Fn(u64),
) {
    let failed = |reason: &dyn std::fmt::Display| Error::bad(format!("node {node}: {reason}"));
    let silent = |_| failed(&format!("it sent nothing for {} s", SILENCE_MAX.as_secs()));
    let come = async {
        let opened = timeout(SILENCE_MAX, peers.layer(node, tenant, layer)).await;
        let mut body = opened.map_err(silent)?.map_err(|failure| failed(&failure))?;
        let mut done = 0_u64;
        let mut waited = Duration::ZERO;
        loop {
            let since = Instant::now();
            let piece = timeout(SILENCE_MAX, body.next()).await.map_err(silent)?;
            waited += since.elapsed();
            let Some(piece) = piece else { return Ok(()) };
            let piece = piece.map_err(|failure| failed(&failure))?;
            done += piece.len() as u64;
            metrics.received_bytes.inc_by(piece.len() as u64);
            if waited > WAIT_MAX + Duration::from_secs(done / RATE_MIN) {
                return Err(failed(&format!("it sent {done} bytes in {} s", waited.as_secs())));
            }
            on_bytes(done);
            // The unpacking thread has failed, and returns that error.
            if to.send(Ok(Some(piece))).await.is_err() {
                return Ok(());
            }
        }
    };
    let end = come.await.map(|()| None);
    let _ = to.send(end).await;
}
