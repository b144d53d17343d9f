//! Operations on images: pull, import, find, remove and collect garbage.

pub(crate) mod images;
mod import;
mod import_slots;
mod layers;
pub(crate) mod progress;
mod pull;
mod record;

pub use import::Spool;
