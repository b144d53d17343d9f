//! The operations of [`Images`](images::Images): pull, import, export, commit, find, remove, collect garbage.

mod commit;
mod export;
pub(crate) mod images;
mod import;
mod import_slots;
mod layers;
pub(crate) mod progress;
mod pull;
mod quota;
mod record;

pub use commit::{CommitSource, CommittedLayer};
pub use export::{HostTrees, ImageArchive};
pub use import::Spool;
