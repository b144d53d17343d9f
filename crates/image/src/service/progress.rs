//! The progress of a pull, for all clients that wait for it.

use crate::error::Error;
use crate::store::Pin;
use crate::store::image::Image;
use std::sync::Arc;

/// The progress of a pull.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Its layers, the lowest one first; none until its manifest is known.
    pub layers: Vec<LayerProgress>,
    /// How it ended, once it has.
    pub end: Option<Result<(Arc<Image>, Pin), Error>>,
}

/// What is being done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// The registry is asked for the manifest.
    #[default]
    Resolving,
    /// Layers are fetched and unpacked.
    Layers,
    /// Layers are there; the image is looked at and recorded.
    Finishing,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerProgress {
    /// Digest of the compressed layer, `sha256:…`.
    pub digest: String,
    /// Downloaded bytes.
    pub done: u64,
    /// Bytes in total.
    pub total: u64,
    /// The layer is on the disk.
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
