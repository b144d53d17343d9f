//! Archives of files: tar with PAX records, compressed with zstd, so that `tar --xattrs --zstd -xf`
//! reads them too. They keep owners, modes, times, extended attributes, hard links and holes.
//!
//! The layers: `entry`, `error`, `pax`; `write` and `tree`; `read`; `allowed` and `extract`.

mod allowed;
pub(crate) mod entry;
mod error;
mod extract;
mod pax;
mod read;
mod tree;
mod write;

pub(crate) use allowed::{Allowed, AllowedSink, Layout, PROCESS_FILES};
pub(crate) use error::PackError;
pub(crate) use extract::Extractor;
pub(crate) use read::{Sink, read};
pub(crate) use tree::{Packed, Tree, allocated, pack};
pub(crate) use write::ArchiveWriter;

/// What an archive contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// The number of files and directories in it.
    pub(crate) entries: u64,
    /// Space that the contents need after a restore, in bytes.
    pub(crate) restored_bytes: u64,
    /// Bytes of contents, without holes.
    pub(crate) data_bytes: u64,
    /// Sockets, devices, paths that are too long, and files that cannot be packed.
    pub(crate) left_out: u64,
}
