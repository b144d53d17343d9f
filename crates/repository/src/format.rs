//! The objects of a repository, and the records of a stream.

pub(crate) mod chunk;
pub(crate) mod header;
pub(crate) mod index;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod record;
