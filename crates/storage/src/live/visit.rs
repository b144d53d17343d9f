//! One pass of a copy in two passes.

use super::DIRECTORIES_MAX;
use crate::attributes::{copy_extended, remove_extended, set};
use crate::change_time::{Time, changed};
use crate::copied::{Copied, ENTRY_BYTES, SpaceCheck, data_bytes};
use crate::error::CopyError;
use crate::method::CopyMethod;
use crate::names::{NAMES_BYTES_MAX, bytes_of, bytes_of_one, check_names};
use crate::tree::hard_links::HardLinks;
use crate::tree::{Copying, DIRECTORY, Directories};
use crate::walk::{LEVELS_MAX, append};
use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What a second pass copies again.
#[derive(Clone, Copy)]
pub(super) struct SecondPass {
    /// What changed at this time or later.
    pub(super) limit: Time,
    /// Also all files of directories that changed then.
    pub(super) with_directories: bool,
}

/// A pass over a tree.
pub(super) struct Visit<'a> {
    entries: Copying<'a>,
    /// The inodes of copies by those of their directories.
    directories: HashMap<u64, u64>,
    /// `None` in the first pass.
    second: Option<SecondPass>,
    /// The memory of the names of all levels.
    names_bytes: usize,
}

/// A directory whose entries are visited.
struct Level {
    names: std::vec::IntoIter<Vec<u8>>,
    names_bytes: usize,
    inodes: [u64; 2],
    path_bytes: usize,
    /// Whether the first pass made the copy from this directory.
    is_known: bool,
    /// Whether its files can have other names than in the first pass without a new time.
    is_shuffled: bool,
    /// Whether something of it may be missing in the copy of the first pass.
    is_incomplete: bool,
    /// Whether the copy was changed in the second pass.
    is_touched: bool,
}

impl<'a> Visit<'a> {
    pub(super) fn live(method: CopyMethod, links: HardLinks, check: SpaceCheck<'a>) -> Self {
        let entries = Copying::new(method, links, check);
        Self { entries, directories: HashMap::new(), second: None, names_bytes: 0 }
    }

    pub(super) fn second(
        method: CopyMethod,
        links: HardLinks,
        check: SpaceCheck<'a>,
        second: SecondPass,
        directories: HashMap<u64, u64>,
    ) -> Self {
        let first = Self::live(method, links, check);
        Self { second: Some(second), directories, ..first }
    }

    pub(super) fn into_directories(self) -> HashMap<u64, u64> {
        self.directories
    }

    pub(super) fn copied(&self) -> Copied {
        self.entries.copied
    }

    /// Visits a directory and everything below it.
    pub(super) fn walk(&mut self, from: &Path, to: &Path) -> Result<(), CopyError> {
        let at_root = |errno| CopyError::at(b"", errno);
        let mut at = open(from, to).map_err(at_root)?;
        let mut path = Vec::new();
        let mut levels = vec![self.enter(&at, &path, true)?];
        while let Some(level) = levels.last_mut() {
            path.truncate(level.path_bytes);
            let Some(name) = level.names.next() else {
                self.leave(&at, level, &path)?;
                self.names_bytes -= level.names_bytes;
                levels.pop();
                let Some(above) = levels.last() else { break };
                at = parent(&at, above.inodes).map_err(|errno| CopyError::at(&path, errno))?;
                continue;
            };
            append(&mut path, &name);
            let found = self.one(&at, level, &name, &path);
            let below = match found {
                Err(CopyError::File { .. }) if self.second.is_none() => {
                    level.is_incomplete = true;
                    None
                }
                below => below?,
            };
            if let Some((below, is_new)) = below {
                if levels.len() >= LEVELS_MAX {
                    return Err(CopyError::too_deep(&path, LEVELS_MAX));
                }
                levels.push(self.enter(&below, &path, !is_new)?);
                at = below;
            }
        }
        Ok(())
    }

    fn enter(&mut self, at: &Directories, path: &[u8], existed: bool) -> Result<Level, CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        let inodes = inodes(at).map_err(failed)?;
        let names = read_names(&at.source).map_err(failed)?;
        let names_bytes = bytes_of(&names);
        self.names_bytes += names_bytes;
        check_names(self.names_bytes, path)?;
        let is_known = existed
            && self.second.is_some()
            && self.directories.get(&inodes[0]) == Some(&inodes[1]);
        if existed && self.second.is_some() && !is_known {
            // The root: everything below is copied again.
            self.clear(at).map_err(failed)?;
        }
        let shuffles = self.second.is_some_and(|second| second.with_directories);
        let is_shuffled = match shuffles && is_known {
            true => !self.is_unchanged(&rustix::fs::fstat(&at.source).map_err(failed)?),
            false => false,
        };
        if self.second.is_none() && self.directories.len() < DIRECTORIES_MAX {
            self.directories.insert(inodes[0], inodes[1]);
        }
        Ok(Level {
            names: names.into_iter(),
            names_bytes,
            inodes,
            path_bytes: path.len(),
            is_known,
            is_shuffled,
            is_incomplete: false,
            is_touched: !is_known,
        })
    }

    /// Visits one entry. Returns a directory, whose entries follow, and whether its copy is new.
    fn one(
        &mut self,
        at: &Directories,
        level: &mut Level,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<(Directories, bool)>, CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        (self.entries.check)(0)?;
        let stat = match rustix::fs::statat(&at.source, name, AtFlags::SYMLINK_NOFOLLOW) {
            // It comes back with a new change time, if at all.
            Err(Errno::NOENT) if self.second.is_none() => return Ok(None),
            stat => stat.map_err(failed)?,
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return self.directory(at, level, name).map(Some).map_err(failed);
        }
        if level.is_known && !level.is_shuffled && self.is_unchanged(&stat) {
            self.entries.copied.entries += 1;
            self.entries.copied.bytes += data_bytes(&stat);
            return Ok(None);
        }
        (self.entries.check)(ENTRY_BYTES)?;
        if level.is_known {
            isolet_sys::tree::remove_at(at.copy.as_fd(), name).map_err(failed)?;
            level.is_touched = true;
        }
        self.entries.other(at, name, path, &stat)?;
        Ok(None)
    }

    fn directory(
        &self,
        at: &Directories,
        level: &mut Level,
        name: &[u8],
    ) -> Result<(Directories, bool), Errno> {
        let source = rustix::fs::openat(&at.source, name, DIRECTORY, Mode::empty())?;
        if level.is_known {
            let inode = rustix::fs::fstat(&source)?.st_ino;
            let known = self.directories.get(&inode);
            if let Ok(copy) = rustix::fs::openat(&at.copy, name, DIRECTORY, Mode::empty())
                && known == Some(&rustix::fs::fstat(&copy)?.st_ino)
            {
                return Ok((Directories { source, copy }, false));
            }
            level.is_touched = true;
            isolet_sys::tree::remove_at(at.copy.as_fd(), name)?;
        }
        rustix::fs::mkdirat(&at.copy, name, Mode::from_raw_mode(0o700))?;
        let copy = rustix::fs::openat(&at.copy, name, DIRECTORY, Mode::empty())?;
        Ok((Directories { source, copy }, true))
    }

    fn leave(&mut self, at: &Directories, level: &mut Level, path: &[u8]) -> Result<(), CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        let stat = rustix::fs::fstat(&at.source).map_err(failed)?;
        let is_changed = !self.is_unchanged(&stat);
        if level.is_known && is_changed {
            remove_vanished(at).map_err(failed)?;
            remove_extended(at.copy.as_fd()).map_err(failed)?;
        }
        if level.is_incomplete {
            self.directories.remove(&level.inodes[0]);
        }
        self.entries.copied.entries += 1;
        if !level.is_touched && !is_changed {
            return Ok(());
        }
        let done = set(at.copy.as_fd(), &stat).map_err(failed).and_then(|()| {
            copy_extended(path, at.source.as_fd(), at.copy.as_fd(), &mut *self.entries.check)
        });
        match done {
            Err(CopyError::File { .. }) if self.second.is_none() => {
                self.directories.remove(&level.inodes[0]);
                Ok(())
            }
            done => done,
        }
    }

    /// Whether the first pass has copied this.
    fn is_unchanged(&self, stat: &Stat) -> bool {
        self.second.is_some_and(|second| changed(stat) < second.limit)
    }

    fn clear(&self, at: &Directories) -> Result<(), Errno> {
        for name in read_names(&at.copy)? {
            isolet_sys::tree::remove_at(at.copy.as_fd(), &name)?;
        }
        remove_extended(at.copy.as_fd())
    }
}

fn open(from: &Path, to: &Path) -> Result<Directories, Errno> {
    let source = rustix::fs::open(from, DIRECTORY, Mode::empty())?;
    let copy = rustix::fs::open(to, DIRECTORY, Mode::empty())?;
    Ok(Directories { source, copy })
}

/// The inodes of a directory and its copy.
fn inodes(at: &Directories) -> Result<[u64; 2], Errno> {
    Ok([rustix::fs::fstat(&at.source)?.st_ino, rustix::fs::fstat(&at.copy)?.st_ino])
}

/// Goes back to the parents. Fails if a directory was moved during the copy.
fn parent(at: &Directories, above: [u64; 2]) -> Result<Directories, Errno> {
    let source = rustix::fs::openat(&at.source, "..", DIRECTORY, Mode::empty())?;
    let copy = rustix::fs::openat(&at.copy, "..", DIRECTORY, Mode::empty())?;
    let parents = Directories { source, copy };
    if inodes(&parents)? == above { Ok(parents) } else { Err(Errno::STALE) }
}

/// The names in a directory.
///
/// # Errors
/// `ENOBUFS` if they need more memory than a copy may; errors of the kernel.
fn read_names(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    let mut bytes = 0;
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            bytes += bytes_of_one(name);
            if bytes > NAMES_BYTES_MAX {
                return Err(Errno::NOBUFS);
            }
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Removes from a copied directory what its original does not have any more.
fn remove_vanished(at: &Directories) -> Result<(), Errno> {
    for name in read_names(&at.copy)? {
        match rustix::fs::statat(&at.source, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => isolet_sys::tree::remove_at(at.copy.as_fd(), &name)?,
            found => _ = found?,
        }
    }
    Ok(())
}
