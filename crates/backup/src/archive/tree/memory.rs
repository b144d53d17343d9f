//! A limit on the memory for names and paths of a tree, because tenants decide how many there are.

use super::FileError;
use crate::archive::PackError;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Maximum memory for the names of directories that are being read and the paths of files with
/// several names, in bytes. Names of 100 bytes: about 1.6 million.
pub(super) const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Memory that a name or a path needs besides its bytes, in bytes.
const OVERHEAD_BYTES: usize = 64;

/// The memory that is left.
pub(super) struct Memory {
    left: usize,
}

/// The names in a directory.
pub(super) struct DirectoryNames {
    pub(super) names: std::vec::IntoIter<Vec<u8>>,
    /// The memory that they need.
    bytes: usize,
}

impl Memory {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: bytes }
    }

    /// Takes memory for a name or a path. Returns how much.
    pub(super) fn take(&mut self, length: usize) -> Result<usize, FileError> {
        let bytes = length + OVERHEAD_BYTES;
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| {
            FileError::Pack(PackError::source(
                "the names of its files and hard links need too much memory",
            ))
        })?;
        Ok(bytes)
    }

    /// The names in a directory, sorted.
    pub(super) fn names(&mut self, directory: &OwnedFd) -> Result<DirectoryNames, FileError> {
        let mut all = Vec::new();
        let mut bytes = 0;
        for entry in rustix::fs::Dir::read_from(directory)? {
            let name = match entry {
                Ok(entry) => entry.file_name().to_bytes().to_vec(),
                Err(errno) => return Err(self.failed(bytes, errno)),
            };
            if name == b"." || name == b".." {
                continue;
            }
            match self.take(name.len()) {
                Ok(taken) => bytes += taken,
                Err(error) => {
                    self.left += bytes;
                    return Err(error);
                }
            }
            all.push(name);
        }
        all.sort_unstable();
        Ok(DirectoryNames { names: all.into_iter(), bytes })
    }

    fn failed(&mut self, bytes: usize, errno: Errno) -> FileError {
        self.left += bytes;
        FileError::Kernel(errno)
    }

    /// Takes names back that are not needed any more.
    pub(super) fn release(&mut self, names: &DirectoryNames) {
        self.left += names.bytes;
    }
}
