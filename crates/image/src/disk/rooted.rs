//! Paths of an archive, resolved below a root directory with openat2(2): neither `..` nor a symlink
//! leads out of it.

use crate::error::Error;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Longest chain of nested directories, also through links. Programs cannot open much deeper paths, and
/// code that walks over a tree later needs a limit.
pub(crate) const DEPTH_MAX: usize = 128;
/// Longest path, in bytes, as in the kernel.
pub(crate) const PATH_BYTES_MAX: usize = 4095;
/// Longest file name, in bytes, as in file systems.
const NAME_BYTES_MAX: usize = 255;
/// Maximum number of bytes of a path that an error quotes.
const SHOWN_BYTES_MAX: usize = 200;
/// Attempts to look up a path while a rename on it is in progress.
const FIND_TRIES: u32 = 16;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// The parts of a path below a root, without `.` and empty ones.
pub(crate) fn parts(path: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let shown = || String::from_utf8_lossy(&path[..path.len().min(SHOWN_BYTES_MAX)]).into_owned();
    if path.len() > PATH_BYTES_MAX {
        return Err(Error::large(format!("path {}…", shown()), format!("{PATH_BYTES_MAX} bytes")));
    }
    let all: Vec<&[u8]> =
        path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if all.contains(&b"..".as_slice()) || path.contains(&0) {
        return Err(Error::bad(format!("path {:?} leads out of its layer", shown())));
    }
    if all.len() > DEPTH_MAX || all.iter().any(|part| part.len() > NAME_BYTES_MAX) {
        let limit = format!("{DEPTH_MAX} parts of {NAME_BYTES_MAX} bytes");
        return Err(Error::large(format!("path {:?}", shown()), limit));
    }
    Ok(all)
}

/// Opens a path within `root`. Symlinks resolve as if `root` were the whole file system.
pub(crate) fn open(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    within(root, path, flags, ResolveFlags::empty())
}

fn within(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    more: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::CLOEXEC;
    let stay = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV | more;
    let mut found = Err(Errno::AGAIN);
    for _ in 0..FIND_TRIES {
        found = rustix::fs::openat2(root, path, flags, Mode::empty(), stay);
        if !matches!(found, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    found
}

/// The directories of a tree that is being unpacked; the last one stays open.
///
/// Each new entry changes the times of its directory. They are restored when the next directory is opened,
/// so nothing has to be remembered about a directory afterwards.
pub(crate) struct Tree<'a> {
    root: BorrowedFd<'a>,
    last: Option<Last>,
    /// Directories that no entry named, created since the last [`Tree::take_implied`].
    implied: Cell<u64>,
}

/// The directory that the last entry was unpacked into, which is still open.
struct Last {
    path: Vec<u8>,
    open: Arc<OwnedFd>,
    times: Timestamps,
    /// An entry was removed since, so that the path may resolve to another directory.
    stale: bool,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, last: None, implied: Cell::new(0) }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'a> {
        self.root
    }

    /// How many parent directories were created since the last call that have no entry of their own.
    pub(crate) fn take_implied(&self) -> u64 {
        self.implied.take()
    }

    /// Opens the directory of these parts, and creates missing ones. Its depth is below
    /// [`DEPTH_MAX`].
    pub(crate) fn directory(&mut self, parts: &[&[u8]]) -> Result<Arc<OwnedFd>, Error> {
        let path = parts.join(&b'/');
        if let Some(last) = &self.last
            && last.path == path
            && !last.stale
        {
            return Ok(Arc::clone(&last.open));
        }
        self.restore_times()?;
        let failed = |errno| blocked(&path, errno);
        let (open, depth) = match self.find(parts).map_err(failed)? {
            // Without symlinks, a path has as many directories as parts.
            Some((open, false)) => (open, parts.len()),
            Some((open, true)) => {
                let depth = self.depth(&open).map_err(failed)?;
                (open, depth)
            }
            None => self.make(parts)?,
        };
        if depth >= DEPTH_MAX {
            return Err(too_deep(&path));
        }
        let times = times(&open).map_err(failed)?;
        let open = Arc::new(open);
        self.last = Some(Last { open: Arc::clone(&open), path, times, stale: false });
        Ok(open)
    }

    /// Opens an existing directory, and returns whether the path contains a symlink.
    fn find(&self, parts: &[&[u8]]) -> Result<Option<(OwnedFd, bool)>, Errno> {
        let path = parts.join(&b'/');
        let (found, linked) = match within(self.root, &path, DIRECTORY, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => (open(self.root, &path, DIRECTORY), true),
            found => (found, false),
        };
        match found {
            Ok(found) => Ok(Some((found, linked))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The number of directories between a directory and the root. Symlinks count with their targets: one
    /// of 4 KiB leads 2,000 deep, and others may continue there. Counting ends at [`DEPTH_MAX`].
    fn depth(&self, directory: &OwnedFd) -> Result<usize, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = identity(self.root)?;
        let mut at = rustix::fs::openat(directory, c".", flags, Mode::empty())?;
        for depth in 0..DEPTH_MAX {
            if identity(at.as_fd())? == root {
                return Ok(depth);
            }
            at = rustix::fs::openat(&at, c"..", flags, Mode::empty())?;
        }
        Ok(DEPTH_MAX)
    }

    /// Creates the missing directories of a path.
    fn make(&self, parts: &[&[u8]]) -> Result<(OwnedFd, usize), Error> {
        let failed = |errno| blocked(&parts.join(&b'/'), errno);
        let mut existing = 0;
        let mut first = open(self.root, b"", DIRECTORY)?;
        while let Some((found, _)) = self.find(&parts[..=existing]).map_err(failed)? {
            first = found;
            existing += 1;
        }
        let mut depth = self.depth(&first).map_err(failed)?;
        if depth + parts.len() - existing >= DEPTH_MAX {
            return Err(too_deep(&parts.join(&b'/')));
        }
        let before = times(&first).map_err(failed)?;
        let mut made: Option<OwnedFd> = None;
        for name in &parts[existing..] {
            let at = made.as_ref().unwrap_or(&first);
            rustix::fs::mkdirat(at, *name, Mode::from_raw_mode(0o755)).map_err(failed)?;
            self.implied.set(self.implied.get() + 1);
            let flags = DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = rustix::fs::openat(at, *name, flags, Mode::empty()).map_err(failed)?;
            depth += 1;
            made = Some(next);
        }
        rustix::fs::futimens(&first, &before).map_err(failed)?;
        Ok((made.unwrap_or(first), depth))
    }

    /// Must be called after a removal: the path of the open directory may resolve to another one.
    pub(crate) fn invalidate(&mut self) {
        if let Some(last) = &mut self.last {
            last.stale = true;
        }
    }

    /// Closes the open directory, and restores its times.
    pub(crate) fn restore_times(&mut self) -> Result<(), Error> {
        match self.last.take() {
            Some(last) => Ok(rustix::fs::futimens(&last.open, &last.times)?),
            None => Ok(()),
        }
    }
}

/// The times of a directory, to be restored later.
pub(crate) fn times(directory: &OwnedFd) -> Result<Timestamps, Errno> {
    let about = rustix::fs::fstat(directory)?;
    #[allow(clippy::useless_conversion)]
    let time = Timespec { tv_sec: about.st_mtime.into(), tv_nsec: about.st_mtime_nsec as i64 };
    Ok(Timestamps { last_access: time, last_modification: time })
}

fn identity(directory: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    let about = rustix::fs::fstat(directory)?;
    Ok((about.st_dev, about.st_ino))
}

fn too_deep(path: &[u8]) -> Error {
    let shown = String::from_utf8_lossy(&path[..path.len().min(SHOWN_BYTES_MAX)]).into_owned();
    let quantity = format!("nested directories at {shown:?}, counted through symlinks");
    Error::large(quantity, DEPTH_MAX.to_string())
}

fn blocked(path: &[u8], errno: Errno) -> Error {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Error::Full,
        errno => {
            let path =
                String::from_utf8_lossy(&path[..path.len().min(SHOWN_BYTES_MAX)]).into_owned();
            Error::bad(format!("path {path:?} of a layer: {}", std::io::Error::from(errno)))
        }
    }
}

/// The type and device number of a name, which is not followed if it is a symlink.
pub(crate) fn kind(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(FileType, u64), Errno> {
    let about = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((FileType::from_raw_mode(about.st_mode), about.st_rdev))
}

pub(crate) fn owner(uid: u32, gid: u32) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: A5.
    #[test]
    fn no_path_leads_out() {
        assert_eq!(parts(b"./a//b/./c/").unwrap(), [b"a", b"b", b"c"]);
        assert_eq!(parts(b"/a").unwrap(), [b"a"]);
        let deep = b"a/".repeat(129);
        for path in [&b"../a"[..], b"a/../b", b"..", b"a\0b", &[b'a'; 256], &deep] {
            assert!(parts(path).is_err(), "{path:?}");
        }
    }
}
