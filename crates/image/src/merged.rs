//! Names of an image, looked up through its layers as an overlay file system would, without
//! mounting one; and the lower layers of an image of many, made one.

use crate::{
    Error,
    beneath::{self, kind, names},
};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Links that one name may lead through, as the kernel has it.
const LINKS_MAX: u32 = 40;
const OPAQUE: &str = "user.overlay.opaque";
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a name is in the end.
pub(crate) enum Found {
    Nothing,
    Directory,
    File(OwnedFd),
    Other,
}

/// An image's layers, the top one first.
pub(crate) struct Merged {
    layers: Vec<OwnedFd>,
}

/// One directory as the layers have it together.
type Stack = Vec<OwnedFd>;

enum Child {
    Nothing,
    Directory(Stack),
    Link(Vec<u8>),
    File(OwnedFd),
    Other,
}

impl Merged {
    pub(crate) fn open<'a>(layers: impl Iterator<Item = &'a Path>) -> Result<Self, Error> {
        let open = |path: &Path| rustix::fs::open(path, DIRECTORY, Mode::empty());
        Ok(Self { layers: layers.map(open).collect::<Result<_, _>>()? })
    }

    /// Where a link of this name leads, if it is one; only its last part may be.
    pub(crate) fn link(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let mut at = self.root()?;
        let parts: Vec<&str> = path.split('/').collect();
        for (index, part) in parts.iter().enumerate() {
            match child(&at, part.as_bytes())? {
                Child::Directory(next) => at = next,
                Child::Link(target) if index + 1 == parts.len() => return Ok(Some(target)),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// What a path leads to, through links, never out of the image.
    pub(crate) fn find(&self, path: &str) -> Result<Found, Error> {
        let mut left: VecDeque<Vec<u8>> = split(path.as_bytes());
        let mut way = vec![self.root()?];
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            if part == b".." {
                // Above the root is the root.
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            let Some(at) = way.last() else { return Ok(Found::Nothing) };
            match child(at, &part)? {
                Child::Directory(next) => way.push(next),
                Child::Link(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Ok(Found::Nothing);
                    }
                    if target.first() == Some(&b'/') {
                        way.truncate(1);
                    }
                    let mut more = split(&target);
                    more.append(&mut left);
                    left = more;
                }
                Child::File(file) if left.is_empty() => return Ok(Found::File(file)),
                Child::Other if left.is_empty() => return Ok(Found::Other),
                _ => return Ok(Found::Nothing),
            }
        }
        Ok(Found::Directory)
    }

    /// The first bytes of a file; `None` where there is none of this name.
    pub(crate) fn read(&self, path: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, Error> {
        let Found::File(file) = self.find(path)? else { return Ok(None) };
        let mut text = Vec::new();
        std::fs::File::from(file).take(bytes_max + 1).read_to_end(&mut text)?;
        if text.len() as u64 > bytes_max {
            return Err(Error::large(path, format!("{bytes_max} bytes")));
        }
        Ok(Some(text))
    }

    fn root(&self) -> Result<Stack, Error> {
        let mut stack = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            stack.push(rustix::fs::openat(layer, c".", DIRECTORY, Mode::empty())?);
        }
        Ok(stack)
    }
}

fn split(path: &[u8]) -> VecDeque<Vec<u8>> {
    let part = |part: &&[u8]| !part.is_empty() && *part != b".";
    path.split(|byte| *byte == b'/').filter(part).map(<[u8]>::to_vec).collect()
}

fn child(stack: &Stack, name: &[u8]) -> Result<Child, Error> {
    let mut below: Stack = Vec::new();
    for layer in stack {
        let (kind, device) = match kind(layer.as_fd(), name) {
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        match kind {
            FileType::Directory => {
                let open = rustix::fs::openat(layer, name, DIRECTORY, Mode::empty())?;
                let last = opaque(open.as_fd());
                below.push(open);
                if last {
                    break;
                }
            }
            // What is no directory ends the merge: it hides, or is hidden.
            _ if !below.is_empty() => break,
            FileType::CharacterDevice if device == 0 => return Ok(Child::Nothing),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(layer, name, Vec::new())?;
                return Ok(Child::Link(target.into_bytes()));
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return Ok(Child::File(rustix::fs::openat(layer, name, flags, Mode::empty())?));
            }
            _ => return Ok(Child::Other),
        }
    }
    Ok(if below.is_empty() { Child::Nothing } else { Child::Directory(below) })
}

fn opaque(directory: BorrowedFd<'_>) -> bool {
    let mut value = [0; 4];
    matches!(rustix::fs::fgetxattr(directory, OPAQUE, &mut value[..]), Ok(1)) && value[0] == b'y'
}

/// Puts one layer over another, which it becomes part of. What it hid is gone; what it hides of
/// layers further below stays hidden.
pub(crate) fn fold(base: BorrowedFd<'_>, top: BorrowedFd<'_>) -> Result<(), Error> {
    for name in names(top)? {
        let (what, _) = kind(top, &name)?;
        let under = match kind(base, &name) {
            Ok((under, _)) => Some(under),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        if (what, under) == (FileType::Directory, Some(FileType::Directory)) {
            let above = rustix::fs::openat(top, &*name, DIRECTORY, Mode::empty())?;
            if !opaque(above.as_fd()) {
                let below = rustix::fs::openat(base, &*name, DIRECTORY, Mode::empty())?;
                fold(below.as_fd(), above.as_fd())?;
                alike(below.as_fd(), above.as_fd())?;
                continue;
            }
        }
        if under.is_some() {
            beneath::remove(base, &name)?;
        }
        rustix::fs::renameat(top, &*name, base, &*name)?;
    }
    Ok(())
}

/// Owner, mode, time and attributes of a directory as those of another.
fn alike(to: BorrowedFd<'_>, from: BorrowedFd<'_>) -> Result<(), Error> {
    let about = rustix::fs::fstat(from)?;
    let (uid, gid) = (Uid::from_raw(about.st_uid), Gid::from_raw(about.st_gid));
    rustix::fs::fchown(to, Some(uid), Some(gid))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(about.st_mode & 0o7777))?;
    let mut list = vec![0; 64 * 1024];
    let length = rustix::fs::flistxattr(from, &mut list[..]).unwrap_or(0);
    for name in list[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; 64 * 1024];
        if let Ok(length) = rustix::fs::fgetxattr(from, name, &mut value[..]) {
            let _ = rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
    #[allow(clippy::useless_conversion)]
    let time = Timespec { tv_sec: about.st_mtime.into(), tv_nsec: about.st_mtime_nsec as i64 };
    Ok(rustix::fs::futimens(to, &Timestamps { last_access: time, last_modification: time })?)
}

/// Whether a name is there, itself.
pub(crate) fn present(at: &Path) -> bool {
    rustix::fs::statat(rustix::fs::CWD, at, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
