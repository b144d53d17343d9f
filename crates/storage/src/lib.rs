//! Copies the files of sandboxes.
//!
//! [`Backend::probe`] finds out what the file system of the data directory offers for snapshots, and
//! so how a file is copied there ([`CopyMethod`]): by reference (`FICLONE`, on btrfs and xfs), or in
//! full with holes preserved. [`copy_file`] copies one file, [`copy_tree`] a directory with
//! everything below it. [`copy_live`] and [`refresh_copy`] begin while programs change the original, so
//! that they stand still only for the difference. [`merge_layers`] makes one layer of several.
//!
//! [`merged`] reads the trees of a snapshot as the overlays of a sandbox show them, without one.
//!
//! Tenants decide what is in a tree. No symbolic link is followed, only regular files are opened,
//! and the size of a tree costs neither stack nor descriptors, and at most a few MiB of memory.
//! Owners are copied as numbers, so a copy belongs to the same ids on the disk as its original.
//!
//! On btrfs, a directory that is a subvolume is copied as a whole ([`copy_subvolume`]).
#![forbid(unsafe_code)]

mod attributes;
mod backend;
mod change_time;
mod copied;
mod error;
mod file;
mod like;
mod live;
mod measure;
mod merge;
pub mod merged;
mod method;
mod names;
mod refresh;
mod subvolume;
mod tree;
mod walk;

pub use backend::Backend;
pub use copied::{Copied, ENTRY_BYTES, SpaceCheck};
pub use error::CopyError;
pub use file::copy_file;
pub use like::create_directory_like;
pub use live::{LiveCopy, StillMoment, copy_live};
pub use measure::measure_tree;
pub use merge::merge_layers;
pub use method::CopyMethod;
pub use refresh::refresh_copy;
pub use subvolume::{copy_subvolume, create_subvolume_or_directory, is_plain_subvolume};
pub use tree::copy_tree;
