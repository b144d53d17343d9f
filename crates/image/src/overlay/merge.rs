//! Merges the lower layers of an image that has many into one.
//!
//! The kernel looks up a name that no layer has in all of them, so an image with more than 24
//! layers would make every failed lookup slow.

use super::lookup::{DIRECTORY, opaque};
use crate::disk::rooted::{DEPTH_MAX, kind, times};
use crate::error::Error;
use isolet_sys::tree;
use rustix::fs::{AtFlags, FileType, Gid, Mode, RawDir, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Names of a directory that are in memory at a time during a merge.
const NAMES_MAX: usize = 512;

/// A directory that both layers have, and that is being merged.
struct OpenDirectory {
    /// Its name in the parent directory.
    name: Vec<u8>,
    base: OwnedFd,
    top: OwnedFd,
    /// Names in `top` that were read and not merged yet.
    names: Vec<Vec<u8>>,
    /// The original times of `top`, which every move changes.
    times: Timestamps,
}

impl OpenDirectory {
    fn open(base: BorrowedFd<'_>, top: BorrowedFd<'_>, name: Vec<u8>) -> Result<Self, Errno> {
        let open = |at| rustix::fs::openat(at, name.as_slice(), DIRECTORY, Mode::empty());
        let base = open(base)?;
        let top = open(top)?;
        let times = times(&top)?;
        Ok(Self { name, base, top, names: Vec::new(), times })
    }

    /// Returns the next name in `top`; `None` once `top` is empty.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        if self.names.is_empty() {
            rustix::fs::seek(&self.top, rustix::fs::SeekFrom::Start(0))?;
            let mut buffer = Vec::with_capacity(32 * 1024);
            let mut entries = RawDir::new(&self.top, buffer.spare_capacity_mut());
            while self.names.len() < NAMES_MAX
                && let Some(entry) = entries.next()
            {
                let name = entry?.file_name().to_bytes().to_vec();
                if name != b"." && name != b".." {
                    self.names.push(name);
                }
            }
        }
        Ok(self.names.pop())
    }

    /// Moves a name into `base`. If both have a directory of this name, returns it, to be merged next.
    fn move_entry(&self, name: Vec<u8>) -> Result<Option<Self>, Error> {
        let base = self.base.as_fd();
        let top = self.top.as_fd();
        let (top_type, _) = kind(top, &name)?;
        let under = match kind(base, &name) {
            Ok((under, _)) => Some(under),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        if (top_type, under) == (FileType::Directory, Some(FileType::Directory)) {
            let both = Self::open(base, top, name.clone())?;
            if !opaque(both.top.as_fd()) {
                return Ok(Some(both));
            }
        }
        if under.is_some() {
            tree::remove_at(base, &name)?;
        }
        rustix::fs::renameat(top, &*name, base, &*name)?;
        Ok(None)
    }
}

/// Merges `top` into `base`, as if it were mounted over it. Files that `top` hid are removed; its
/// whiteouts stay, since they also hide files of layers further below. `top` is empty afterwards.
pub(crate) fn merge_layers(base: BorrowedFd<'_>, top: BorrowedFd<'_>) -> Result<(), Error> {
    let mut levels = vec![OpenDirectory::open(base, top, b".".to_vec())?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.next()? {
            let both = level.move_entry(name)?;
            if both.is_some() && levels.len() > DEPTH_MAX {
                let limit = DEPTH_MAX.to_string();
                return Err(Error::large("nested directories in a layer", limit));
            }
            levels.extend(both);
            continue;
        }
        // Each level takes two descriptors; the limit on a layer's depth bounds them.
        let Some(done) = levels.pop() else { break };
        rustix::fs::futimens(&done.base, &done.times)?;
        if let Some(above) = levels.last() {
            copy_metadata(done.base.as_fd(), done.top.as_fd())?;
            rustix::fs::unlinkat(&above.top, done.name.as_slice(), AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

/// Copies owner, mode and extended attributes from one directory to another.
fn copy_metadata(to: BorrowedFd<'_>, from: BorrowedFd<'_>) -> Result<(), Error> {
    let about = rustix::fs::fstat(from)?;
    let uid = Uid::from_raw(about.st_uid);
    let gid = Gid::from_raw(about.st_gid);
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
    Ok(())
}
