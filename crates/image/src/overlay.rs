//! Layers as an overlay file system shows them, without mounting one: `lookup` of paths, `merge` of
//! two layers into one, and the `user` that an image's programs run as.

pub(crate) mod lookup;
pub(crate) mod merge;
pub(crate) mod user;
