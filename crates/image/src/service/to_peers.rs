//! Sends layers and images to other nodes.

use super::images::{Images, Inner};
use super::layers::blocking;
use crate::error::Error;
use crate::peers::{LayerBody, PeerFailure, SentImage};
use crate::reference::{Digest, Reference};
use crate::store::image::Image;
use crate::store::layer;
use crate::unpack::tar_split;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use isolet_metrics::ImageMetrics;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Layers that are sent at the same time. Each needs a thread that reads and compresses.
pub(super) const SENT_MAX: usize = 4;
/// The level of compression: about 500 MB/s, and 40 % of the bytes. Uncompressed, a layer would take longer
/// than from a registry on a network of 1 Gbit/s.
const LEVEL: i32 = 1;
/// Bytes that are sent at a time.
const PIECE_BYTES: usize = 128 * 1024;
/// Pieces that wait for the other node.
const PIECES_MAX: usize = 4;
/// How long the other node may read nothing.
const STALLED_MAX: Duration = Duration::from_secs(30);

/// An image that this node can send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldImage {
    /// The digest of the image.
    pub digest: String,
    /// When it was recorded, in ms since 1970.
    pub recorded_at_ms: i64,
}

impl Images {
    /// Which of these layers this node can send to a tenant, as indexes. Blocks for a file of each.
    #[must_use]
    pub fn sendable_layers(&self, tenant: &str, layers: &[Digest]) -> Vec<usize> {
        let can = |digest: &Digest| self.inner.can_send(tenant, digest);
        layers.iter().enumerate().filter(|(_, digest)| can(digest)).map(|(at, _)| at).collect()
    }

    /// Whether this node can send an image of a tenant. A name that is not a digest must be that of an
    /// image which no registry has: the registry decides what its tags stand for.
    #[must_use]
    pub fn sendable_image(&self, tenant: &str, reference: &Reference) -> Option<HeldImage> {
        let image = self.inner.image_to_send(tenant, reference)?;
        Some(HeldImage { digest: image.digest.clone(), recorded_at_ms: image.pulled_at_ms })
    }

    /// The image that this node sends: what another one reads as an answer of
    /// [`ImagePeers::image`](crate::ImagePeers::image).
    ///
    /// # Errors
    /// [`Error::NotHere`], [`Error::Bad`].
    pub async fn image_for_peer(
        &self,
        tenant: &str,
        reference: &Reference,
    ) -> Result<Bytes, Error> {
        let inner = Arc::clone(&self.inner);
        let not_here = || Error::NotHere(reference.to_string());
        let image = inner.image_to_send(tenant, reference).ok_or_else(not_here)?;
        let tenant = tenant.to_owned();
        blocking(move || {
            let sessions = inner.store.sessions(&image)?;
            let name = |path: &String| layer::name(path).map(str::to_owned);
            let size = |path: &String| inner.store.layer(&name(path)?).map(|stats| stats.bytes);
            let sizes = image.root.layers.iter().map(|path| size(path).unwrap_or(0)).collect();
            SentImage::new(image.for_tenant(&tenant), sessions.as_ref(), sizes).write()
        })
        .await
    }

    /// Sends the archive of a layer to another node on behalf of a tenant.
    ///
    /// # Errors
    /// [`Error::NotHere`] if this node cannot send it to that tenant, [`Error::Busy`].
    pub fn layer_for_peer(&self, tenant: &str, digest: &Digest) -> Result<LayerBody, Error> {
        let inner = Arc::clone(&self.inner);
        // Before the layer is looked for, so that it is not collected in between.
        let held = inner.hold_layer(digest.hex());
        if !inner.can_send(tenant, digest) {
            return Err(Error::NotHere(digest.to_string()));
        }
        let busy =
            |_| Error::Busy { quantity: "layers sent to other nodes at once", limit: SENT_MAX };
        let slot = Arc::clone(&inner.sent).try_acquire_owned().map_err(busy)?;
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let digest = digest.clone();
        let metrics = inner.metrics.clone();
        tokio::task::spawn_blocking(move || {
            let _held = held;
            let _slot = slot;
            let mut to = Pieces::new(sender, metrics);
            let failed = match inner.write_layer(&digest, &mut to) {
                Ok(()) => return,
                Err(error) => error,
            };
            // The other node has ended the transfer, or its connection has.
            if !to.is_closed {
                tracing::warn!(layer = %digest, error = %failed, "cannot send a layer to another node");
                to.fail(&failed);
            }
        });
        Ok(stream::unfold(pieces, async |mut pieces| Some((pieces.recv().await?, pieces))).boxed())
    }
}

impl Inner {
    fn can_send(&self, tenant: &str, digest: &Digest) -> bool {
        let name = digest.hex();
        self.store.tar_split(name).is_some()
            && self.store.layer(name).is_some()
            && self.store.has_proof(name, tenant)
    }

    fn image_to_send(&self, tenant: &str, reference: &Reference) -> Option<Arc<Image>> {
        let image = self.store.find(tenant, reference)?;
        let is_own = reference.digest().is_some() || image.is_own_name(tenant, reference);
        (is_own && self.store.missing_layer(&image.root.layers).is_none()).then_some(image)
    }

    fn write_layer(&self, digest: &Digest, to: &mut Pieces) -> Result<(), Error> {
        let name = digest.hex();
        let gone = || Error::NotHere(digest.to_string());
        let split = self.store.tar_split(name).ok_or_else(gone)?;
        let tree = open(&self.store.root.join(layer::tree(name)))?;
        let mut packed = zstd::Encoder::new(&mut *to, LEVEL)?;
        tar_split::write_archive(&split, tree.as_fd(), &mut packed)?;
        packed.finish()?;
        Ok(to.flush()?)
    }
}

fn open(tree: &Path) -> Result<std::os::fd::OwnedFd, Error> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let flags = flags | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(tree, flags, rustix::fs::Mode::empty())?)
}

/// Sends what is written, in pieces, as fast as the other node reads. Blocks.
struct Pieces {
    to: mpsc::Sender<Result<Bytes, PeerFailure>>,
    piece: Vec<u8>,
    metrics: ImageMetrics,
    is_closed: bool,
}

impl Pieces {
    fn new(to: mpsc::Sender<Result<Bytes, PeerFailure>>, metrics: ImageMetrics) -> Self {
        Self { to, piece: Vec::with_capacity(PIECE_BYTES), metrics, is_closed: false }
    }

    fn send(&mut self, piece: Result<Bytes, PeerFailure>) -> io::Result<()> {
        let sent = Handle::current().block_on(timeout(STALLED_MAX, self.to.send(piece)));
        if matches!(sent, Ok(Ok(()))) {
            return Ok(());
        }
        self.is_closed = true;
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn fail(&mut self, error: &Error) {
        let _ = self.send(Err(PeerFailure(error.to_string())));
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES - self.piece.len();
        let count = bytes.len().min(room);
        self.piece.extend_from_slice(&bytes[..count]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let count = piece.len() as u64;
        self.send(Ok(piece.into()))?;
        self.metrics.sent_bytes.inc_by(count);
        Ok(())
    }
}
