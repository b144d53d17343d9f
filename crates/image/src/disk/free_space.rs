//! Keeps a minimum of free disk space, however many images are unpacked in parallel.

use crate::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all imports and layers together write between two looks at the disk.
const CHECK_INTERVAL_BYTES: u64 = 1024 * 1024;
/// What a file or directory takes beside its content, in bytes: an inode, a name, and a block where
/// it is a directory. Millions of empty ones fill a disk as well.
pub(crate) const ENTRY_BYTES: u64 = 4096;

/// Images leave one in so many inodes of the file system to all others. A file system that makes
/// inodes as it needs them says that it has none to count.
const INODES_SHARE: u64 = 50;

/// The disk of the image directory.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    directory: PathBuf,
    floor_bytes: u64,
    /// Bytes that were written since the last look.
    unchecked_bytes: AtomicU64,
}

impl FreeSpace {
    pub(crate) fn new(directory: PathBuf, floor_bytes: u64) -> Self {
        Self { directory, floor_bytes, unchecked_bytes: AtomicU64::new(0) }
    }

    /// Counts what is about to be written, and looks at the disk from time to time.
    ///
    /// # Errors
    /// [`Error::Full`] below the floor.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Error> {
        let unchecked_bytes =
            self.unchecked_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if unchecked_bytes < CHECK_INTERVAL_BYTES { Ok(()) } else { self.check() }
    }

    /// Looks at the disk now: at its free bytes, and at its free inodes.
    ///
    /// # Errors
    /// [`Error::Full`] below the floor.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let disk = rustix::fs::statvfs(&self.directory)?;
        let inodes_floor = disk.f_files / INODES_SHARE;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < self.floor_bytes
            || disk.f_favail < inodes_floor
        {
            // Whoever writes next looks at once.
            self.unchecked_bytes.store(CHECK_INTERVAL_BYTES, Ordering::Relaxed);
            return Err(Error::Full);
        }
        self.unchecked_bytes.store(0, Ordering::Relaxed);
        Ok(())
    }
}
