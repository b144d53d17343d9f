//! The floor of free space: no image takes the server's disk below it, however many come at once.

use crate::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all imports and layers together write between two looks at the disk.
const LOOK_BYTES: u64 = 1024 * 1024;
/// What a file or directory takes beside its content, in bytes: an inode, a name, and a block where
/// it is a directory. Millions of empty ones fill a disk as well.
pub(crate) const ENTRY_BYTES: u64 = 4096;

/// Images leave one in so many inodes of the file system to all others. A file system that makes
/// inodes as it needs them says that it has none to count.
const INODES_SHARE: u64 = 50;

/// The disk of the image directory.
#[derive(Debug)]
pub(crate) struct Room {
    directory: PathBuf,
    floor_bytes: u64,
    /// Bytes that were written since the last look.
    unseen: AtomicU64,
}

impl Room {
    pub(crate) fn new(directory: PathBuf, floor_bytes: u64) -> Self {
        Self { directory, floor_bytes, unseen: AtomicU64::new(0) }
    }

    /// Counts what is about to be written, and looks at the disk from time to time.
    ///
    /// # Errors
    /// [`Error::Full`] below the floor.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Error> {
        let unseen = self.unseen.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if unseen < LOOK_BYTES { Ok(()) } else { self.look() }
    }

    /// Looks at the disk now: at its free bytes, and at its free inodes.
    ///
    /// # Errors
    /// [`Error::Full`] below the floor.
    pub(crate) fn look(&self) -> Result<(), Error> {
        let disk = rustix::fs::statvfs(&self.directory)?;
        let inodes_floor = disk.f_files / INODES_SHARE;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < self.floor_bytes
            || disk.f_favail < inodes_floor
        {
            // Whoever writes next looks at once.
            self.unseen.store(LOOK_BYTES, Ordering::Relaxed);
            return Err(Error::Full);
        }
        self.unseen.store(0, Ordering::Relaxed);
        Ok(())
    }
}
