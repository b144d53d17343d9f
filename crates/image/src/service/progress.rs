//! How far a pull is, for everybody who waits for it.

use crate::error::Error;
use crate::store::Pin;
use crate::store::image::Image;
use std::sync::Arc;

/// Where a pull stands.
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
    /// As it comes, `sha256:…`.
    pub digest: String,
    /// Bytes that have come.
    pub done: u64,
    /// Bytes that are to come.
    pub total: u64,
    /// It was here before, or is by now.
    pub ready: bool,
}

impl Phase {
    /// As clients are told.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Resolving => "resolving",
            Self::Layers => "layers",
            Self::Finishing => "finishing",
        }
    }
}
