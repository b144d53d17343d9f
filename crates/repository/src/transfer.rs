//! Pushes, pulls, lists and prunes.

pub(crate) mod checkpoint;
pub(crate) mod deep_check;
pub(crate) mod fetch;
pub(crate) mod index_cache;
pub(crate) mod known;
pub(crate) mod packer;
pub(crate) mod progress;
pub(crate) mod prune;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod repack;
pub(crate) mod repository;
