//! Copies a directory tree, without recursion and with two descriptors.

pub(crate) mod hard_links;
#[cfg(test)]
mod tests;

use crate::attributes::{copy_extended, set, set_at};
use crate::copied::{Copied, ENTRY_BYTES, SpaceCheck, data_bytes};
use crate::error::CopyError;
use crate::file::copy_data;
use crate::method::CopyMethod;
use crate::walk::{Visitor, walk};
use hard_links::HardLinks;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A named pipe or a file with a lease does not block: the program that holds a lease may be frozen.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOATIME)
    .union(OFlags::CLOEXEC);

/// Copies a directory with everything below it to a path that does not exist yet: files with their
/// holes, links, named pipes, and the whiteouts of overlays, with owners, modes, times, extended
/// attributes and hard links. Sockets are left out, because the process behind each is not copied,
/// and so are devices. Blocks.
///
/// `links` is an existing directory of the same file system that no one else uses: it holds a name
/// of each file with several names while the copy runs. It is left for the caller to remove.
///
/// The caller flushes the file system.
///
/// # Errors
/// [`CopyError`]; a part of the tree may be there.
pub fn copy_tree(
    method: CopyMethod,
    from: &Path,
    to: &Path,
    links: &Path,
    check: SpaceCheck<'_>,
) -> Result<Copied, CopyError> {
    let at = |errno| CopyError::at(b"", errno);
    let source = rustix::fs::open(from, DIRECTORY, Mode::empty()).map_err(at)?;
    check(ENTRY_BYTES)?;
    rustix::fs::mkdir(to, Mode::from_raw_mode(0o700)).map_err(at)?;
    let copy = rustix::fs::open(to, DIRECTORY, Mode::empty()).map_err(at)?;
    let links = HardLinks::open(links).map_err(at)?;
    let mut copying = Copying::new(method, links, check);
    walk(&mut copying, Directories { source, copy })?;
    Ok(copying.copied)
}

/// A directory and its copy.
pub(crate) struct Directories {
    pub(crate) source: OwnedFd,
    pub(crate) copy: OwnedFd,
}

pub(crate) struct Copying<'a> {
    method: CopyMethod,
    links: HardLinks,
    pub(crate) check: SpaceCheck<'a>,
    pub(crate) copied: Copied,
}

impl Visitor for Copying<'_> {
    type Place = Directories;

    fn source<'a>(&self, at: &'a Directories) -> BorrowedFd<'a> {
        at.source.as_fd()
    }

    fn entry(
        &mut self,
        at: &Directories,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<Directories>, CopyError> {
        (self.check)(ENTRY_BYTES)?;
        let failed = |errno| CopyError::at(path, errno);
        let stat =
            rustix::fs::statat(&at.source, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => directory(at, name).map(Some).map_err(failed),
            _ => self.other(at, name, path, &stat).map(|()| None),
        }
    }

    fn leave(&mut self, at: &Directories, path: &[u8]) -> Result<(), CopyError> {
        // Not before its entries are there: they would inherit a default ACL.
        let stat = rustix::fs::fstat(&at.source);
        let done = stat.and_then(|stat| set(at.copy.as_fd(), &stat));
        done.map_err(|errno| CopyError::at(path, errno))?;
        self.copied.entries += 1;
        copy_extended(path, at.source.as_fd(), at.copy.as_fd(), &mut *self.check)
    }

    fn parent(&self, at: &Directories) -> Result<Directories, Errno> {
        Ok(Directories {
            source: rustix::fs::openat(&at.source, "..", DIRECTORY, Mode::empty())?,
            copy: rustix::fs::openat(&at.copy, "..", DIRECTORY, Mode::empty())?,
        })
    }

    fn inodes(&self, at: &Directories) -> Result<[u64; 2], Errno> {
        Ok([rustix::fs::fstat(&at.source)?.st_ino, rustix::fs::fstat(&at.copy)?.st_ino])
    }
}

impl<'a> Copying<'a> {
    pub(crate) fn new(method: CopyMethod, links: HardLinks, check: SpaceCheck<'a>) -> Self {
        Self { method, links, check, copied: Copied::default() }
    }

    /// Copies one entry that is no directory.
    pub(crate) fn other(
        &mut self,
        at: &Directories,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
    ) -> Result<(), CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(at, name, path)?,
            FileType::Symlink => symlink(at, name, stat).map_err(failed)?,
            FileType::Fifo => node(at, name, stat, FileType::Fifo).map_err(failed)?,
            // A whiteout of an overlay: a file of the layers below that was deleted.
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                node(at, name, stat, FileType::CharacterDevice).map_err(failed)?;
            }
            _ => return Ok(()),
        }
        self.copied.entries += 1;
        Ok(())
    }

    fn file(&mut self, at: &Directories, name: &[u8], path: &[u8]) -> Result<(), CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        let source = rustix::fs::openat(&at.source, name, FILE, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&source).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(failed(Errno::STALE));
        }
        let several = stat.st_nlink > 1;
        if several && self.links.reuse(&stat, at.copy.as_fd(), name).map_err(failed)? {
            if self.links.is_of_first_pass(&stat) {
                // What the first pass copied is counted by the second.
                self.copied.bytes += data_bytes(&stat);
            }
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let copy = rustix::fs::openat(&at.copy, name, flags, Mode::from_raw_mode(0o600))
            .map_err(failed)?;
        let bytes = copy_data(self.method, path, source.as_fd(), copy.as_fd(), &mut *self.check)?;
        self.copied.bytes += bytes;
        // The owner before the extended attributes, because the kernel removes capabilities with a
        // change of the owner.
        set(copy.as_fd(), &stat).map_err(failed)?;
        copy_extended(path, source.as_fd(), copy.as_fd(), &mut *self.check)?;
        if several {
            self.links.remember(&stat, at.copy.as_fd(), name).map_err(failed)?;
        }
        Ok(())
    }
}

fn directory(at: &Directories, name: &[u8]) -> Result<Directories, Errno> {
    let source = rustix::fs::openat(&at.source, name, DIRECTORY, Mode::empty())?;
    rustix::fs::mkdirat(&at.copy, name, Mode::from_raw_mode(0o700))?;
    let copy = rustix::fs::openat(&at.copy, name, DIRECTORY, Mode::empty())?;
    Ok(Directories { source, copy })
}

fn symlink(at: &Directories, name: &[u8], stat: &Stat) -> Result<(), Errno> {
    let target = rustix::fs::readlinkat(&at.source, name, Vec::new())?;
    rustix::fs::symlinkat(target.as_c_str(), &at.copy, name)?;
    set_at(at.copy.as_fd(), name, stat, true)
}

fn node(at: &Directories, name: &[u8], stat: &Stat, kind: FileType) -> Result<(), Errno> {
    rustix::fs::mknodat(&at.copy, name, kind, Mode::from_raw_mode(0o600), 0)?;
    set_at(at.copy.as_fd(), name, stat, false)
}
