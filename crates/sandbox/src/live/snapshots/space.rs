//! What a copy may still write, and whether it was cancelled.

use crate::model::held::cancel::CancelToken;
use isolet_storage::CopyError;
use rustix::fs::StatVfs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1024 * 1024;
/// How much may be written between two looks at the disk.
const STEP_BYTES: u64 = 16 * MIB;
/// How many entries may be created between two looks at the disk.
const STEP_ENTRIES: u64 = 1024;
/// How many inodes a copy leaves free, for records and for files of other sandboxes.
const INODES_FREE_MIN: u64 = 256;

/// What a copy must leave free on the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpaceFloor {
    /// In MiB. 0 means no check.
    pub(crate) floor_mib: u64,
}

/// Checks one copy: before each entry and before each part of a file.
#[derive(Debug)]
pub(crate) struct CopyGuard {
    directory: PathBuf,
    floor: SpaceFloor,
    tokens: Vec<CancelToken>,
    /// What may be written before the next look.
    left_bytes: u64,
    left_entries: u64,
}

impl CopyGuard {
    pub(crate) fn new(directory: &Path, floor: SpaceFloor, tokens: Vec<CancelToken>) -> Self {
        Self { directory: directory.to_owned(), floor, tokens, left_bytes: 0, left_entries: 0 }
    }

    /// # Errors
    /// [`CopyError::Cancelled`]; [`CopyError::Full`] if the disk has no space for `bytes` more.
    pub(crate) fn check(&mut self, bytes: u64) -> Result<(), CopyError> {
        if self.tokens.iter().any(CancelToken::is_cancelled) {
            return Err(CopyError::Cancelled);
        }
        if self.floor.floor_mib == 0 {
            return Ok(());
        }
        if bytes > self.left_bytes || self.left_entries == 0 {
            // If the disk cannot be queried, the write itself will report an error.
            let Ok(disk) = rustix::fs::statvfs(&self.directory) else { return Ok(()) };
            self.look(&disk, bytes)?;
        }
        self.left_bytes -= bytes;
        self.left_entries -= 1;
        Ok(())
    }

    fn look(&mut self, disk: &StatVfs, bytes: u64) -> Result<(), CopyError> {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let spare_bytes = free.saturating_sub(self.floor.floor_mib.saturating_mul(MIB));
        // A file system without a fixed number of inodes has none of them free.
        let spare_entries = match disk.f_files {
            0 => STEP_ENTRIES,
            _ => disk.f_favail.saturating_sub(INODES_FREE_MIN),
        };
        if bytes > spare_bytes || spare_entries == 0 {
            return Err(CopyError::Full);
        }
        self.left_bytes = spare_bytes.min(STEP_BYTES.max(bytes));
        self.left_entries = spare_entries.min(STEP_ENTRIES);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(free_mib: u64, inodes: u64, free_inodes: u64) -> StatVfs {
        let mut disk = rustix::fs::statvfs("/").unwrap();
        disk.f_frsize = 4096;
        disk.f_bavail = free_mib * MIB / 4096;
        disk.f_files = inodes;
        disk.f_favail = free_inodes;
        disk
    }

    fn guard(tokens: Vec<CancelToken>) -> CopyGuard {
        CopyGuard::new(Path::new("/"), SpaceFloor { floor_mib: 10 }, tokens)
    }

    #[test]
    fn nothing_is_written_below_the_floor_nor_without_inodes() {
        let mut guard = guard(Vec::new());
        assert!(guard.look(&disk(12, 0, 0), 2 * MIB).is_ok());
        assert_eq!((guard.left_bytes, guard.left_entries), (2 * MIB, STEP_ENTRIES));
        assert!(matches!(guard.look(&disk(12, 0, 0), 2 * MIB + 1), Err(CopyError::Full)));
        assert!(guard.look(&disk(900, 1000, 300), 1).is_ok());
        assert_eq!((guard.left_bytes, guard.left_entries), (STEP_BYTES, 300 - INODES_FREE_MIN));
        assert!(matches!(guard.look(&disk(900, 1000, INODES_FREE_MIN), 1), Err(CopyError::Full)));
    }

    #[test]
    fn a_cancelled_copy_ends_at_its_next_check() {
        let token = CancelToken::default();
        let mut guard = guard(vec![token.clone(), CancelToken::default()]);
        guard.floor.floor_mib = 0;
        assert!(guard.check(u64::MAX).is_ok());
        token.cancel();
        assert!(matches!(guard.check(0), Err(CopyError::Cancelled)));
    }
}
