//! From a registry, or a file, to read-only layers that sandboxes share.
//!
//! [`Images`] is the way in. What a tenant names is made whole (`reference`), asked for
//! (`registry`), unpacked (`unpack`) and recorded (`store`); a sandbox is then made of
//! its [`Root`].
#![forbid(unsafe_code)]

mod config;
mod disk;
mod error;
mod manifest;
mod overlay;
mod reference;
mod registry;
mod service;
mod store;
mod unpack;

pub use config::{Config, Limits};
pub use error::Error;
pub use manifest::Platform;
pub use overlay::user::User;
pub use reference::{BadReference, Digest, Reference};
pub use service::Spool;
pub use service::images::{Images, Used};
pub use service::progress::{LayerProgress, Phase, Progress};
pub use store::Pin;
pub use store::image::{Image, Root};
pub use store::init_layer::Shell;
pub use unpack::Told;
