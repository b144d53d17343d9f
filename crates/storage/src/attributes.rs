//! Owner, mode, times and extended attributes of a copied file.

use crate::copied::SpaceCheck;
use crate::error::CopyError;
use rustix::fs::{AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Maximum size of the list of names and of each value, by the kernel.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Copies the extended attributes of an open file or directory, whose `path` is for errors.
pub(crate) fn copy_extended(
    path: &[u8],
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    check: SpaceCheck<'_>,
) -> Result<(), CopyError> {
    let failed = |errno| CopyError::at(path, errno);
    let mut list = vec![0; VALUE_BYTES_MAX];
    let count = match rustix::fs::flistxattr(from, list.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) | Ok(0) => return Ok(()),
        count => count.map_err(failed)?,
    };
    let mut value = vec![0; VALUE_BYTES_MAX];
    for name in list[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::fgetxattr(from, name, value.as_mut_slice()).map_err(failed)?;
        check((name.len() + length) as u64)?;
        let set = rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty());
        set.map_err(failed)?;
    }
    Ok(())
}

/// Removes the extended attributes of an open copy, so that those of the original can be set.
pub(crate) fn remove_extended(of: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut list = vec![0; VALUE_BYTES_MAX];
    let count = match rustix::fs::flistxattr(of, list.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) | Ok(0) => return Ok(()),
        count => count?,
    };
    for name in list[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match rustix::fs::fremovexattr(of, name) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Sets owner, mode and times of an open copy. Last, because a change of the owner removes setuid
/// bits, and a change of the contents moves the times.
pub(crate) fn set(to: BorrowedFd<'_>, stat: &Stat) -> Result<(), Errno> {
    let uid = Uid::from_raw(stat.st_uid);
    let gid = Gid::from_raw(stat.st_gid);
    rustix::fs::fchown(to, Some(uid), Some(gid))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    rustix::fs::futimens(to, &times(stat))
}

/// Sets owner, mode and times of a copy that cannot be opened.
pub(crate) fn set_at(
    parent: BorrowedFd<'_>,
    name: &[u8],
    stat: &Stat,
    is_link: bool,
) -> Result<(), Errno> {
    let uid = Uid::from_raw(stat.st_uid);
    let gid = Gid::from_raw(stat.st_gid);
    rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_link {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
    }
    rustix::fs::utimensat(parent, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)
}

fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    }
}
