//! The commands that change the state of sandboxes.

pub(crate) mod pause;
pub(crate) mod recover;
