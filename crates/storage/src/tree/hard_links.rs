//! Files with several names. The first copy of each gets another name in a directory of its own, so
//! that further names need neither memory nor a path to the first.

use super::DIRECTORY;
use crate::change_time::{Time, changed};
use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// The directory, below that of the first pass, for files that changed since.
const CHANGED: &str = "changed";

/// The directory that holds a name of each copied file with several names.
pub(crate) struct HardLinks {
    directory: OwnedFd,
    /// In a second pass, the directory for files that changed at a time or later. What the first pass
    /// made of them is not used any more.
    changed: Option<(OwnedFd, Time)>,
}

impl HardLinks {
    pub(crate) fn open(directory: &Path) -> Result<Self, Errno> {
        let directory = rustix::fs::open(directory, DIRECTORY, Mode::empty())?;
        Ok(Self { directory, changed: None })
    }

    /// The same directory for a second pass, which copies what changed at `limit` or later.
    pub(crate) fn after_first_pass(directory: &Path, limit: Time) -> Result<Self, Errno> {
        let Self { directory, .. } = Self::open(directory)?;
        rustix::fs::mkdirat(&directory, CHANGED, Mode::from_raw_mode(0o700))?;
        let changed = rustix::fs::openat(&directory, CHANGED, DIRECTORY, Mode::empty())?;
        Ok(Self { directory, changed: Some((changed, limit)) })
    }

    /// Whether the copy of a file is that of the first pass.
    pub(super) fn is_of_first_pass(&self, stat: &Stat) -> bool {
        self.changed.as_ref().is_some_and(|(_, limit)| changed(stat) < *limit)
    }

    fn directory_of(&self, stat: &Stat) -> &OwnedFd {
        match &self.changed {
            Some((directory, limit)) if changed(stat) >= *limit => directory,
            _ => &self.directory,
        }
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
        let directory = self.directory_of(stat);
        match rustix::fs::linkat(directory, &own, parent, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::MLINK) => rustix::fs::renameat(directory, &own, parent, name).map(|()| true),
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
        let directory = self.directory_of(stat);
        rustix::fs::linkat(parent, name, directory, own_name(stat), AtFlags::empty())
    }
}

fn own_name(stat: &Stat) -> String {
    format!("{}-{}", stat.st_dev, stat.st_ino)
}
