//! What pulls need of a fleet: other nodes that have a layer or an image.
//!
//! The implementation lives outside of this crate. A server without one asks registries only.
//!
//! Nodes trust each other, and a tenant has the same rights on all of them: a node answers for a
//! tenant as it would serve it itself. It sends a layer only if that tenant has downloaded, imported
//! or made the layer there, and an image only under a name that the tenant has.

use crate::error::Error;
use crate::reference::{Digest, Reference};
use crate::store::image::Image;
use crate::store::sessions::SESSIONS_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};

/// The longest image that a node sends without its layers, in bytes: a configuration of 1 MiB, and
/// sessions in base64.
pub const SENT_IMAGE_BYTES_MAX: usize = 2 * 1024 * 1024 + SESSIONS_BYTES_MAX.div_ceil(3) * 4;

/// The other nodes of a fleet. All calls end within seconds, except the body of a layer.
pub trait ImagePeers: Send + Sync {
    /// Asks nodes which of these layers they can send to a tenant. `image` has them.
    fn find_layers<'a>(
        &'a self,
        tenant: &'a str,
        image: &'a Digest,
        layers: &'a [Digest],
    ) -> BoxFuture<'a, Vec<LayerHolder>>;

    /// Asks all nodes for an image of a tenant: by digest, or by a name that the tenant has given to an
    /// imported image or to one of a sandbox. The newest of several.
    fn find_image<'a>(
        &'a self,
        tenant: &'a str,
        reference: &'a Reference,
    ) -> BoxFuture<'a, Option<ImageHolder>>;

    /// The image that a node has under a name of a tenant: what [`SentImage::write`] wrote.
    fn image<'a>(
        &'a self,
        node: &'a str,
        tenant: &'a str,
        reference: &'a Reference,
    ) -> BoxFuture<'a, Result<Bytes, PeerFailure>>;

    /// The archive of a layer, compressed with zstd.
    fn layer<'a>(
        &'a self,
        node: &'a str,
        tenant: &'a str,
        layer: &'a Digest,
    ) -> BoxFuture<'a, Result<LayerBody, PeerFailure>>;
}

/// A node, and the layers that it can send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerHolder {
    /// The name of the node.
    pub node: String,
    /// The layers, by the digests of their archives.
    pub layers: Vec<Digest>,
}

/// A node that has an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageHolder {
    /// The name of the node.
    pub node: String,
    /// The digest of the image.
    pub digest: String,
    /// When the node recorded it, in ms since 1970.
    pub recorded_at_ms: i64,
}

/// The bytes of a layer. Dropping it ends the transfer.
pub type LayerBody = BoxStream<'static, Result<Bytes, PeerFailure>>;

/// Why a node sent nothing, or not all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PeerFailure(pub String);

/// An image as a node sends it, without its layers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SentImage {
    pub(crate) image: Image,
    /// The content of its sessions in base64, if it has some.
    sessions: Option<String>,
    /// The unpacked sizes of its layers, in bytes, in the order of its root; 0 for what is no layer.
    pub(crate) layer_bytes: Vec<u64>,
}

impl SentImage {
    pub(crate) fn new(image: Image, sessions: Option<&Bytes>, layer_bytes: Vec<u64>) -> Self {
        Self { image, sessions: sessions.map(|content| STANDARD.encode(content)), layer_bytes }
    }

    /// The image as bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(crate) fn write(&self) -> Result<Bytes, Error> {
        let text = serde_json::to_vec(self).map_err(|error| Error::Disk(error.to_string()))?;
        if text.len() > SENT_IMAGE_BYTES_MAX {
            let limit = format!("{SENT_IMAGE_BYTES_MAX} bytes");
            return Err(Error::large("the record of an image", limit));
        }
        Ok(text.into())
    }

    /// Reads what [`SentImage::write`] wrote.
    pub(crate) fn read(text: &[u8]) -> Result<Self, PeerFailure> {
        serde_json::from_slice(text)
            .map_err(|error| PeerFailure(format!("it sent an image that cannot be read: {error}")))
    }

    /// The content of the sessions, compared with the digest in the image.
    pub(crate) fn sessions(&self) -> Result<Option<Bytes>, PeerFailure> {
        let bad = || PeerFailure("it sent sessions that are not those of the image".to_owned());
        match (&self.sessions, &self.image.sessions) {
            (None, None) => Ok(None),
            (Some(text), Some(saved)) => {
                let content = STANDARD.decode(text).map_err(|_| bad())?;
                let same = Digest::of(&content).to_string() == saved.digest;
                if same { Ok(Some(content.into())) } else { Err(bad()) }
            }
            _ => Err(bad()),
        }
    }
}
