//! The data directory of a restore that is not complete.

use super::sync;
use crate::error::{Error, at};
use rustix::fs::FlockOperation;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file that marks the directory.
const MARK: &str = "restore-incomplete";
/// The lock of a data directory, which a server holds too.
const LOCK: &str = "lock";
/// A directory that new file systems have.
const LOST_FOUND: &str = "lost+found";

/// A data directory that is being restored. Dropping it removes what was written.
pub(super) struct IncompleteRestore {
    data: PathBuf,
    created: bool,
    complete: bool,
    _lock: File,
}

impl IncompleteRestore {
    /// Marks and locks an empty directory, which is created if it is missing. Empties one that an
    /// interrupted restore left.
    pub(super) fn begin(data: &Path) -> Result<Self, Error> {
        let created = match DirBuilder::new().recursive(false).mode(0o711).create(data) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(at(data)(error)),
        };
        let mark = data.join(MARK);
        let marked = mark.try_exists().map_err(at(&mark))?;
        if !marked && !is_empty(data)? {
            return Err(Error::NotEmpty(data.to_owned()));
        }
        let path = data.join(LOCK);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(at(&path))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::InUse(data.to_owned()))?;
        if marked {
            clear(data, &[MARK, LOCK])?;
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&mark).and_then(|mark| mark.sync_all()).map_err(at(&mark))?;
        Ok(Self { data: data.to_owned(), created, complete: false, _lock: lock })
    }

    /// Removes the mark, after everything is on the disk.
    pub(super) fn complete(mut self) -> Result<(), Error> {
        sync(&self.data)?;
        let mark = self.data.join(MARK);
        fs::remove_file(&mark).map_err(at(&mark))?;
        self.complete = true;
        sync(&self.data)
    }
}

impl Drop for IncompleteRestore {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        // The mark goes last: until then, a server refuses the directory.
        if clear(&self.data, &[MARK]).is_ok() && clear(&self.data, &[]).is_ok() && self.created {
            let _ = fs::remove_dir(&self.data);
        }
    }
}

fn names(data: &Path) -> Result<Vec<std::ffi::OsString>, Error> {
    let all = fs::read_dir(data).map_err(at(data))?;
    let mut names = all
        .map(|name| Ok(name?.file_name()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(at(data))?;
    names.retain(|name| name != LOST_FOUND);
    Ok(names)
}

/// Whether the directory contains at most the lock, which a restore that was killed at its beginning
/// left.
fn is_empty(data: &Path) -> Result<bool, Error> {
    Ok(names(data)?.iter().all(|name| name == LOCK))
}

/// Removes everything in the directory but these files.
fn clear(data: &Path, but: &[&str]) -> Result<(), Error> {
    for name in names(data)?.iter().filter(|name| !but.iter().any(|but| *name == but)) {
        let path = data.join(name);
        isolet_sys::tree::remove(&path).map_err(at(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restore_that_was_killed_before_its_mark_can_be_repeated() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join(LOCK), "").unwrap();
        drop(IncompleteRestore::begin(data.path()).unwrap());
        assert_eq!(names(data.path()).unwrap().len(), 0);
        fs::write(data.path().join("mine"), "x").unwrap();
        let refused = IncompleteRestore::begin(data.path());
        assert!(matches!(refused, Err(Error::NotEmpty(_))));
    }
}
