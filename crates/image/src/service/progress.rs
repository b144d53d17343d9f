//! The progress of a pull, for all clients that wait for it.

use super::layers::LayerEvent;
use crate::error::Error;
use crate::store::Pin;
use crate::store::image::Image;
use std::sync::Arc;

/// The progress of a pull.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// What the pull does now.
    pub phase: Phase,
    /// The layers, the lowest one first; empty until the manifest is known.
    pub layers: Vec<LayerProgress>,
    /// The result; `None` while the pull runs.
    pub end: Option<Result<(Arc<Image>, Pin), Error>>,
}

/// The phases of a pull, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// The registry is queried for the manifest.
    #[default]
    Resolving,
    /// Layers are fetched and unpacked.
    Layers,
    /// All layers are on the disk; the image is inspected and recorded.
    Finishing,
}

/// The progress of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerProgress {
    /// Digest of the compressed layer, `sha256:…`.
    pub digest: String,
    /// Bytes downloaded so far; they stay 0 for a layer that is on the disk already. Those of a layer
    /// from another node are counted up to `total`, because it is compressed differently.
    pub done: u64,
    /// Compressed size, in bytes; the unpacked size in an image that is copied from another node.
    pub total: u64,
    /// Whether the layer is on the disk.
    pub ready: bool,
    /// Where it comes from; `None` until that is decided.
    pub from: Option<LayerFrom>,
}

/// Where a layer comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerFrom {
    /// It is on the disk already.
    Disk,
    /// The registry or a mirror sends it.
    Registry,
    /// Another node with this name sends it.
    Node(String),
}

impl LayerProgress {
    /// A layer of which nothing has arrived.
    pub(crate) fn new(digest: String, total: u64) -> Self {
        Self { digest, done: 0, total, ready: false, from: None }
    }
}

impl Progress {
    /// Notes an event of a layer.
    pub(crate) fn note(&mut self, index: usize, event: LayerEvent) {
        let Some(layer) = self.layers.get_mut(index) else { return };
        match event {
            LayerEvent::From(from) => {
                layer.done = 0;
                layer.from = Some(from);
            }
            LayerEvent::Bytes(done) => layer.done = done.min(layer.total),
            LayerEvent::Ready => layer.ready = true,
        }
    }

    /// The number of layers that other nodes have sent.
    pub(crate) fn layers_from_nodes(&self) -> usize {
        let from_node = |layer: &&LayerProgress| matches!(layer.from, Some(LayerFrom::Node(_)));
        self.layers.iter().filter(from_node).count()
    }
}

impl Phase {
    /// The name of the phase in the API.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Resolving => "resolving",
            Self::Layers => "layers",
            Self::Finishing => "finishing",
        }
    }
}
