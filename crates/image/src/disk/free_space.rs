//! Keeps a minimum of free disk space, however many images are unpacked in parallel.

use crate::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all imports and layers together write between two checks of the disk.
const CHECK_INTERVAL_BYTES: u64 = 1024 * 1024;
/// The space that a file or directory needs beside its content, in bytes: an inode, a name, and a
/// block if it is a directory. Millions of empty files fill a disk too.
pub(crate) const ENTRY_BYTES: u64 = 4096;

/// Images leave one in this many inodes of the file system free. A file system that allocates inodes
/// on demand reports a total of 0 and is not checked.
const INODES_SHARE: u64 = 50;

/// The disk of the image directory.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    directory: PathBuf,
    floor_bytes: u64,
    /// Bytes that were written since the last check.
    unchecked_bytes: AtomicU64,
}

impl FreeSpace {
    pub(crate) fn new(directory: PathBuf, floor_bytes: u64) -> Self {
        Self { directory, floor_bytes, unchecked_bytes: AtomicU64::new(0) }
    }

    /// Counts bytes that are about to be written, and checks the disk every [`CHECK_INTERVAL_BYTES`].
    ///
    /// # Errors
    /// [`Error::Full`] below the floor.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Error> {
        let unchecked_bytes =
            self.unchecked_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if unchecked_bytes < CHECK_INTERVAL_BYTES { Ok(()) } else { self.check() }
    }

    /// Checks the free bytes and the free inodes of the disk now.
    ///
    /// # Errors
    /// [`Error::Full`] below the floor.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let disk = rustix::fs::statvfs(&self.directory)?;
        let inodes_floor = disk.f_files / INODES_SHARE;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < self.floor_bytes
            || disk.f_favail < inodes_floor
        {
            // The next write checks the disk again.
            self.unchecked_bytes.store(CHECK_INTERVAL_BYTES, Ordering::Relaxed);
            return Err(Error::Full);
        }
        self.unchecked_bytes.store(0, Ordering::Relaxed);
        Ok(())
    }
}
