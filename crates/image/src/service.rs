//! The operations of [`Images`](images::Images): pull, import, export, commit, find, remove, collect garbage.

mod commit;
mod export;
mod from_peers;
pub(crate) mod images;
mod import;
mod import_slots;
mod layers;
pub(crate) mod progress;
mod pull;
mod quota;
mod record;
mod tag;
mod to_peers;

pub use commit::{CommitSource, CommittedLayer};
pub use export::{HostTrees, ImageArchive};
pub use import::Spool;
pub use import_slots::UploadSlot;
pub use record::ImageChanges;
pub use to_peers::HeldImage;
