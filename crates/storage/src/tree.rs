//! Copies a directory tree of any depth, without recursion and with two descriptors.

mod hard_links;
#[cfg(test)]
mod tests;

use crate::attributes::{copy_extended, set, set_at};
use crate::copied::{Copied, SpaceCheck};
use crate::error::CopyError;
use crate::file::copy_data;
use crate::method::CopyMethod;
use hard_links::HardLinks;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A named pipe or a file with a lease does not block: the program that holds a lease may be frozen.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOATIME)
    .union(OFlags::CLOEXEC);
/// Maximum memory for the names of the directories that are being copied, in bytes. Names of 100
/// bytes: about 1.6 million.
const NAMES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Memory that a name needs besides its bytes, in bytes.
const NAME_OVERHEAD_BYTES: usize = 64;
/// The maximum length of the path in an error, in bytes. A longer path is not recorded further.
const PATH_BYTES_MAX: usize = 64 * 1024;

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
    let stat = rustix::fs::fstat(&source).map_err(at)?;
    rustix::fs::mkdir(to, Mode::from_raw_mode(0o700)).map_err(at)?;
    let copy = rustix::fs::open(to, DIRECTORY, Mode::empty()).map_err(at)?;
    let links = HardLinks::open(links).map_err(at)?;
    let mut copying = Copying { method, links, check, copied: Copied::default(), names_bytes: 0 };
    copying.walk(Directories { source, copy }, stat)?;
    Ok(copying.copied)
}

/// A directory and its copy.
struct Directories {
    source: OwnedFd,
    copy: OwnedFd,
}

/// A directory whose entries are being copied.
struct Level {
    names: std::vec::IntoIter<Vec<u8>>,
    names_bytes: usize,
    /// The attributes for the copy.
    stat: Stat,
    /// The inode of the copy.
    copy_inode: u64,
    path_bytes: usize,
}

struct Copying<'a> {
    method: CopyMethod,
    links: HardLinks,
    check: SpaceCheck<'a>,
    copied: Copied,
    /// Memory of all names of all levels.
    names_bytes: usize,
}

impl Copying<'_> {
    fn walk(&mut self, root: Directories, stat: Stat) -> Result<(), CopyError> {
        let mut at = root;
        let mut path = Vec::new();
        let mut levels = vec![self.enter(&at, stat, &path)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                // Not before its entries are there: they would inherit a default ACL.
                set(at.copy.as_fd(), &level.stat)
                    .and_then(|()| copy_extended(at.source.as_fd(), at.copy.as_fd()))
                    .map_err(|errno| CopyError::at(&path, errno))?;
                self.names_bytes -= level.names_bytes;
                levels.pop();
                let Some(above) = levels.last() else { break };
                at = ascend(&at, above).map_err(|errno| CopyError::at(&path, errno))?;
                path.truncate(above.path_bytes);
                continue;
            };
            let parent_bytes = level.path_bytes;
            path.truncate(parent_bytes);
            append(&mut path, &name);
            if let Some((below, stat)) = self.one(&at, &name, &path)? {
                at = below;
                levels.push(self.enter(&at, stat, &path)?);
            }
        }
        Ok(())
    }

    /// Reads the names of a directory.
    fn enter(&mut self, at: &Directories, stat: Stat, path: &[u8]) -> Result<Level, CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        let copy_inode = rustix::fs::fstat(&at.copy).map_err(failed)?.st_ino;
        let mut names = Vec::new();
        let mut names_bytes = 0;
        for entry in rustix::fs::Dir::read_from(&at.source).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            names_bytes += name.len() + NAME_OVERHEAD_BYTES;
            if self.names_bytes + names_bytes > NAMES_BYTES_MAX {
                return Err(CopyError::TooManyNames { mib: NAMES_BYTES_MAX >> 20 });
            }
            names.push(name);
        }
        self.names_bytes += names_bytes;
        self.copied.entries += 1;
        let names = names.into_iter();
        Ok(Level { names, names_bytes, stat, copy_inode, path_bytes: path.len() })
    }

    /// Copies one entry. Returns a directory, whose entries follow, with its attributes.
    fn one(
        &mut self,
        at: &Directories,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<(Directories, Stat)>, CopyError> {
        let failed = |errno| CopyError::at(path, errno);
        let stat =
            rustix::fs::statat(&at.source, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return self.directory(at, name).map(Some).map_err(failed),
            FileType::RegularFile => self.file(at, name, path)?,
            FileType::Symlink => symlink(at, name, &stat).map_err(failed)?,
            FileType::Fifo => node(at, name, &stat, FileType::Fifo).map_err(failed)?,
            // A whiteout of an overlay: a file of the layers below that was deleted.
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                node(at, name, &stat, FileType::CharacterDevice).map_err(failed)?;
            }
            _ => return Ok(None),
        }
        self.copied.entries += 1;
        Ok(None)
    }

    fn directory(&self, at: &Directories, name: &[u8]) -> Result<(Directories, Stat), Errno> {
        let source = rustix::fs::openat(&at.source, name, DIRECTORY, Mode::empty())?;
        let stat = rustix::fs::fstat(&source)?;
        rustix::fs::mkdirat(&at.copy, name, Mode::from_raw_mode(0o700))?;
        let copy = rustix::fs::openat(&at.copy, name, DIRECTORY, Mode::empty())?;
        Ok((Directories { source, copy }, stat))
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
        copy_extended(source.as_fd(), copy.as_fd()).map_err(failed)?;
        if several {
            self.links.remember(&stat, at.copy.as_fd(), name).map_err(failed)?;
        }
        Ok(())
    }
}

fn append(path: &mut Vec<u8>, name: &[u8]) {
    if path.len() + name.len() >= PATH_BYTES_MAX {
        return;
    }
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Goes back to the parents. Fails if a directory was moved during the copy.
fn ascend(at: &Directories, above: &Level) -> Result<Directories, Errno> {
    let source = rustix::fs::openat(&at.source, "..", DIRECTORY, Mode::empty())?;
    let copy = rustix::fs::openat(&at.copy, "..", DIRECTORY, Mode::empty())?;
    let is_same = rustix::fs::fstat(&source)?.st_ino == above.stat.st_ino
        && rustix::fs::fstat(&copy)?.st_ino == above.copy_inode;
    if is_same { Ok(Directories { source, copy }) } else { Err(Errno::STALE) }
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
