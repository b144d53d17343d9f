//! One file in an archive.

/// Size of a block of a tar archive, in bytes.
pub(super) const BLOCK_BYTES: usize = 512;
/// Maximum length of a path, in bytes. A tenant can make longer ones, which are left out: each entry
/// repeats its whole path.
pub(super) const PATH_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of parts of a sparse file.
pub(super) const PARTS_MAX: usize = 4 * 1024 * 1024;
/// Maximum length of the target of a symbolic link, in bytes: the limit of the kernel.
pub(super) const LINK_BYTES_MAX: usize = 4096;

/// The kind of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory, without what is in it.
    Directory,
    /// A regular file. Its contents follow.
    File {
        /// Its length, in bytes.
        length: u64,
        /// The parts that are not holes; `None`: there are no holes.
        parts: Option<Vec<FilePart>>,
    },
    /// A symbolic link, which is never followed.
    Symlink {
        /// The path that the link contains.
        target: Vec<u8>,
    },
    /// Another name of a file that precedes it in the archive.
    HardLink {
        /// The path of that file.
        to: Vec<u8>,
    },
    /// A named pipe, without what is in it.
    Fifo,
    /// A character device 0/0: a file of a lower layer that an overlay hides.
    Whiteout,
}

/// A part of a file that is not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilePart {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// An extended attribute of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// What is the same for all kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The permission bits with set-user-id, set-group-id and sticky.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified_s: i64,
    pub(crate) modified_ns: u32,
    pub(crate) extended: Vec<Attribute>,
}

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Path below the root; empty for the root itself.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) attributes: Attributes,
}

/// The bytes that fill up the last block.
pub(super) fn padding(length: u64) -> usize {
    let over = (length % BLOCK_BYTES as u64) as usize;
    if over == 0 { 0 } else { BLOCK_BYTES - over }
}

/// The map of a sparse file in front of its data (GNU format 1.0), padded to a block.
pub(super) fn sparse_map(parts: &[FilePart]) -> Vec<u8> {
    let mut text = format!("{}\n", parts.len());
    for part in parts {
        text.push_str(&format!("{}\n{}\n", part.offset, part.length));
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len() + padding(bytes.len() as u64), 0);
    bytes
}
