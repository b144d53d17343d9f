//! Copies the files of sandboxes.
//!
//! [`CopyMethod::probe`] finds out how the file system of the data directory copies a file: by
//! reference (`FICLONE`, on btrfs and xfs), or in full with holes preserved. [`copy_file`] copies
//! one file, [`copy_tree`] a directory with everything below it.
//!
//! Tenants decide what is in a tree. No symbolic link is followed, only regular files are opened,
//! and the depth of a tree costs neither stack nor descriptors. Owners are copied as numbers, so a
//! copy belongs to the same ids on the disk as its original.
#![forbid(unsafe_code)]

mod attributes;
mod error;
mod file;
mod method;
mod tree;

pub use error::CopyError;
pub use file::copy_file;
pub use method::CopyMethod;
pub use tree::copy_tree;

/// What a copy contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files, directories and other entries.
    pub entries: u64,
    /// Size of the data in the files without their holes, in bytes. A copy by reference takes less
    /// of the disk.
    pub bytes: u64,
}

/// Called before more is written, with the number of bytes that were written since the last call.
/// An error ends the copy.
pub type SpaceCheck<'a> = &'a mut dyn FnMut(u64) -> Result<(), CopyError>;
