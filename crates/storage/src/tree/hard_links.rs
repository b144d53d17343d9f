//! Files with several names. The first copy of each gets another name in a directory of its own, so
//! that further names need neither memory nor a path to the first.

use super::DIRECTORY;
use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// The directory that holds a name of each copied file with several names.
pub(crate) struct HardLinks {
    directory: OwnedFd,
}

impl HardLinks {
    pub(crate) fn open(directory: &Path) -> Result<Self, Errno> {
        Ok(Self { directory: rustix::fs::open(directory, DIRECTORY, Mode::empty())? })
    }

    /// Links the copy of a file under one more name. Returns whether there is a copy. Where the copy
    /// has as many names as the file system allows, its name in this directory becomes that name;
    /// further names get another copy.
    pub(super) fn reuse(
        &self,
        stat: &Stat,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<bool, Errno> {
        let own = own_name(stat);
        match rustix::fs::linkat(&self.directory, &own, parent, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::MLINK) => {
                rustix::fs::renameat(&self.directory, &own, parent, name).map(|()| true)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Remembers the first copy of a file.
    pub(super) fn remember(
        &self,
        stat: &Stat,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), Errno> {
        rustix::fs::linkat(parent, name, &self.directory, own_name(stat), AtFlags::empty())
    }
}

fn own_name(stat: &Stat) -> String {
    format!("{}-{}", stat.st_dev, stat.st_ino)
}
