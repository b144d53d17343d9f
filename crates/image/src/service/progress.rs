//! The progress of a pull, for all clients that wait for it.

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
    /// Bytes downloaded so far; they stay 0 for a layer that is on the disk already.
    pub done: u64,
    /// Compressed size, in bytes.
    pub total: u64,
    /// Whether the layer is on the disk.
    pub ready: bool,
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
