//! Pulls images from registries, imports them from files, or makes them of sandboxes, as read-only layers that sandboxes
//! share.
//!
//! [`Images`] is the entry point. The name that a tenant gives is parsed (`reference`), pulled from its
//! `registry`, unpacked (`unpack`) and recorded (`store`); a sandbox is then made of the image's
//! [`Root`].
//!
//! | layer | modules |
//! |---|---|
//! | operations | `service`: pull, import, export, commit, find, remove, collect garbage |
//! | images on the disk | `store`: records, layers, init layers |
//! | parts | `registry`, `unpack`, `pack`, `overlay`, `manifest`, `image_config`, `disk` |
//! | other nodes | `peers`: what pulls need of a fleet |
//! | data | `reference`, `platform`, `config`, `error` |
#![forbid(unsafe_code)]

mod config;
mod disk;
mod error;
mod image_config;
mod manifest;
mod overlay;
mod pack;
mod peers;
mod platform;
mod reference;
mod registry;
mod service;
mod store;
mod unpack;

pub use config::{Config, Limits, Quotas};
pub use error::Error;
pub use image_config::LABELS_BYTES_MAX;
pub use overlay::user::User;
pub use pack::{PrivateFile, PrivateFileKind};
pub use peers::{
    ImageHolder, ImagePeers, LayerBody, LayerHolder, PeerFailure, SENT_IMAGE_BYTES_MAX,
};
pub use platform::Platform;
pub use reference::{BadReference, Digest, Reference};
pub use service::images::Images;
pub use service::progress::{LayerFrom, LayerProgress, Phase, Progress};
pub use service::{
    CommitSource, CommittedLayer, HeldImage, HostTrees, ImageArchive, ImageChanges, Spool,
    UploadSlot,
};
pub use store::image::{Image, Origin, Root, SavedSessions};
pub use store::init_layer::BashSource;
pub use store::sessions::{SESSIONS_BYTES_MAX, too_large as sessions_too_large};
pub use store::{ImagesInUse, Pin};
pub use unpack::LayerStats;
pub use unpack::tar_stream::{Mtime, TarEntry, TarStream};
