//! What a copy contains, and what it may write.

use crate::error::CopyError;
use rustix::fs::{FileType, Stat};
use std::ops::AddAssign;

/// What each file, directory or link takes of a disk at least besides its data, in bytes.
pub const ENTRY_BYTES: u64 = 4096;

/// What a copy contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files, directories and other entries.
    pub entries: u64,
    /// Size of the data in the files without their holes, in bytes. A copy by reference takes less
    /// of the disk.
    pub bytes: u64,
}

impl Copied {
    /// Size of the data and of the entries, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.entries.saturating_mul(ENTRY_BYTES).saturating_add(self.bytes)
    }
}

impl AddAssign for Copied {
    fn add_assign(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

/// Called before more is written: for each entry with [`ENTRY_BYTES`], for each extended attribute
/// with its size, and for data at least every 16 MiB with its size. An error ends the copy, so a
/// caller can cancel it here.
pub type SpaceCheck<'a> = &'a mut dyn FnMut(u64) -> Result<(), CopyError>;

/// The data of a file without its holes, divided among its names.
#[allow(clippy::useless_conversion)]
pub(crate) fn data_bytes(stat: &Stat) -> u64 {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return 0;
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    size.min(allocated) / u64::from(stat.st_nlink).max(1)
}
