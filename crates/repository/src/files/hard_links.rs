//! Files with several names.

use crate::error::Error;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Maximum number of files with several names in one tree, so that their inodes stay in memory.
const FILES_MAX: usize = 1_000_000;
/// The directory that holds a name of each file with several names while a tree is written. No root
/// has such a name.
const DIRECTORY: &str = ".links";

/// Numbers of the files with several names that were read.
#[derive(Default)]
pub(crate) struct LinkNumbers {
    numbers: HashMap<u64, u64>,
}

impl LinkNumbers {
    /// The number of an inode, and whether it is new.
    pub(crate) fn number(&mut self, inode: u64) -> Result<(u64, bool), Error> {
        let next = self.numbers.len() as u64;
        if let Some(number) = self.numbers.get(&inode) {
            return Ok((*number, false));
        }
        if self.numbers.len() >= FILES_MAX {
            let limit = format!("{FILES_MAX} in one tree");
            return Err(Error::TooLarge { what: "files with several names", limit });
        }
        self.numbers.insert(inode, next);
        Ok((next, true))
    }
}

/// Names of the files with several names that were written.
pub(crate) struct LinkDirectory {
    directory: OwnedFd,
}

impl LinkDirectory {
    /// Creates the directory.
    pub(crate) fn create(staging: BorrowedFd<'_>) -> Result<Self, Errno> {
        rustix::fs::mkdirat(staging, DIRECTORY, Mode::from_raw_mode(0o700))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { directory: rustix::fs::openat(staging, DIRECTORY, flags, Mode::empty())? })
    }

    /// Remembers the first name of a file.
    pub(crate) fn remember(
        &self,
        number: u64,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), Errno> {
        rustix::fs::linkat(parent, name, &self.directory, number.to_string(), AtFlags::empty())
    }

    /// Gives a file one more name.
    pub(crate) fn reuse(
        &self,
        number: u64,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), Errno> {
        rustix::fs::linkat(&self.directory, number.to_string(), parent, name, AtFlags::empty())
    }

    /// Removes the directory.
    pub(crate) fn remove(self, staging: BorrowedFd<'_>) -> Result<(), Errno> {
        isolet_sys::tree::remove_at(staging, DIRECTORY.as_bytes())
    }
}
