//! What a server does with images: pull, import, find, remove and collect them.

pub(crate) mod images;
mod import;
mod import_slots;
mod layers;
pub(crate) mod progress;
mod pull;
mod record;

pub use import::Spool;
