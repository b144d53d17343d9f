//! Layers as an overlay file system would show them, without mounting one: `lookup` resolves paths,
//! `merge` turns two layers into one, and `user` finds the user that an image's programs run as.

pub(crate) mod lookup;
pub(crate) mod merge;
pub(crate) mod user;
