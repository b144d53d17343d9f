//! Names of an archive, resolved within a tree by the kernel: neither `..` nor a link leads out.

use crate::Error;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Parts of a path. Deeper ones are no file system's.
const DEPTH_MAX: usize = 128;
/// As the kernel bounds a path.
const PATH_BYTES_MAX: usize = 4095;
/// As file systems bound a name.
const NAME_BYTES_MAX: usize = 255;
/// How often a path is looked up that something is moved in meanwhile.
const FIND_TRIES: u32 = 16;

/// The parts of a path below a root, without `.` and empty ones.
pub(crate) fn parts(path: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let shown = || String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
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

/// Opens a path within `root`; links lead where they would if `root` were the whole file system.
pub(crate) fn open(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let mut found = Err(Errno::AGAIN);
    for _ in 0..FIND_TRIES {
        found = rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), within);
        if !matches!(found, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    found
}

/// Directories of a tree that is being filled; the last one stays open.
pub(crate) struct Tree<'a> {
    root: BorrowedFd<'a>,
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, last: None }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'a> {
        self.root
    }

    /// The directory of these parts; made, with those above it, where it is not there.
    pub(crate) fn directory(&mut self, parts: &[&[u8]]) -> Result<Arc<OwnedFd>, Error> {
        let path = parts.join(&b'/');
        if let Some((known, open)) = &self.last
            && *known == path
        {
            return Ok(Arc::clone(open));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let found = match open(self.root, &path, flags) {
            Err(Errno::NOENT) => self.make(parts)?,
            found => found.map_err(|errno| blocked(&path, errno))?,
        };
        let found = Arc::new(found);
        self.last = Some((path, Arc::clone(&found)));
        Ok(found)
    }

    fn make(&mut self, parts: &[&[u8]]) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = open(self.root, b"", flags)?;
        for end in 1..=parts.len() {
            let path = parts[..end].join(&b'/');
            at = match open(self.root, &path, flags) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, parts[end - 1], Mode::from_raw_mode(0o755))
                        .map_err(|errno| blocked(&path, errno))?;
                    let made = open(self.root, &path, flags);
                    made.map_err(|errno| blocked(&path, errno))?
                }
                found => found.map_err(|errno| blocked(&path, errno))?,
            };
        }
        Ok(at)
    }

    /// Something was put in another's place: what was open may be elsewhere.
    pub(crate) fn changed(&mut self) {
        self.last = None;
    }
}

fn blocked(path: &[u8], errno: Errno) -> Error {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Error::Full,
        errno => {
            let path = String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
            Error::bad(format!("path {path:?} of a layer: {}", std::io::Error::from(errno)))
        }
    }
}

/// Removes what is there under this name, with all below it. Names are never followed.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::NOENT) => return Ok(()),
        done => return done,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // No deeper than what was made here: its depth is bounded.
    let open = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    for name in names(open.as_fd())? {
        remove(open.as_fd(), &name)?;
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// What a directory holds, without `.` and `..`.
pub(crate) fn names(directory: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut all = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            all.push(name);
        }
    }
    Ok(all)
}

/// Kind of what is there under a name, without following it.
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
