//! The directory of a backup that is being written: it has another name until it is complete.

use crate::error::{Error, at};
use crate::files::sync_directory;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A backup that is not complete. Dropping it removes it.
pub(super) struct PartialBackup {
    path: PathBuf,
    target: PathBuf,
    complete: bool,
    /// Locked, so that another process does not take it for one that was interrupted.
    _lock: OwnedFd,
}

impl PartialBackup {
    /// Creates the directory beside the target. Removes one that an interrupted backup left.
    pub(super) fn create(target: &Path, data: &Path) -> Result<Self, Error> {
        let name = target.file_name().ok_or_else(|| Error::NotEmpty(target.to_owned()))?;
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = fs::canonicalize(parent).map_err(at(parent))?;
        let target = parent.join(name);
        if target.starts_with(data) {
            let inside = std::io::Error::other("a backup cannot lie in the data directory");
            return Err(at(&target)(inside));
        }
        refuse_full(&target)?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".partial");
        let path = parent.join(hidden);
        if let Ok(lock) = open(&path) {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
                .map_err(|_| Error::InUse(path.clone()))?;
            isolet_sys::tree::remove(&path).map_err(at(&path))?;
        }
        DirBuilder::new().mode(0o700).create(&path).map_err(at(&path))?;
        let lock = open(&path).map_err(at(&path))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::InUse(path.clone()))?;
        Ok(Self { path, target, complete: false, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the backup its name.
    pub(super) fn complete(mut self) -> Result<(), Error> {
        refuse_full(&self.target)?;
        fs::rename(&self.path, &self.target).map_err(at(&self.target))?;
        self.complete = true;
        self.target.parent().map_or(Ok(()), sync_directory)
    }
}

impl Drop for PartialBackup {
    fn drop(&mut self) {
        if !self.complete {
            let _ = isolet_sys::tree::remove(&self.path);
        }
    }
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Refuses a target that is anything but missing or an empty directory.
fn refuse_full(target: &Path) -> Result<(), Error> {
    let about = match fs::symlink_metadata(target) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        about => about.map_err(at(target))?,
    };
    let empty = about.is_dir() && fs::read_dir(target).map_err(at(target))?.next().is_none();
    if empty { Ok(()) } else { Err(Error::NotEmpty(target.to_owned())) }
}
