//! The commands that change the state of sandboxes or copy them.

pub(crate) mod create;
pub(crate) mod moving;
pub(crate) mod pause;
pub(crate) mod recover;
pub(crate) mod remove;
pub(crate) mod snapshot;
mod snapshot_files;
pub(crate) mod transfer;
pub(crate) mod wake;
