//! The operations of [`Images`](images::Images): pull, import, find, remove, collect garbage.

pub(crate) mod images;
mod import;
mod import_slots;
mod layers;
pub(crate) mod progress;
mod pull;
mod quota;
mod record;

pub use import::Spool;
