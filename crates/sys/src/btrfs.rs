//! Subvolumes of btrfs: directories that are copied and deleted as a whole.
//!
//! UNSAFETY: the ioctls of btrfs have no safe wrapper.

use rustix::fs::Stat;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `BTRFS_SUPER_MAGIC` of `linux/magic.h`.
const MAGIC: u64 = 0x9123_683e;
/// `BTRFS_FIRST_FREE_OBJECTID`: the inode of the top directory of every subvolume.
const TOP_INODE: u64 = 256;
/// Requests of `linux/btrfs.h`, which libc does not define.
const SNAP_CREATE_V2: libc::c_ulong = 0x5000_9417;
const SUBVOL_CREATE_V2: libc::c_ulong = 0x5000_9418;
const SUBVOL_GETFLAGS: libc::c_ulong = 0x8008_9419;
const SUBVOL_SETFLAGS: libc::c_ulong = 0x4008_941a;
const GET_SUBVOL_ROOTREF: libc::c_ulong = 0xd000_943d;
const SNAP_DESTROY_V2: libc::c_ulong = 0x5000_943f;
/// `BTRFS_SUBVOL_RDONLY`.
const READ_ONLY: u64 = 2;
/// The size of the name in the arguments, with the zero at its end.
const NAME_BYTES: usize = 4040;

/// `struct btrfs_ioctl_vol_args_v2`.
#[repr(C)]
struct VolumeArguments {
    fd: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; NAME_BYTES],
}

/// `struct btrfs_ioctl_get_subvol_rootref_args`.
#[repr(C)]
struct RootReferences {
    least: u64,
    /// Pairs of a subvolume and the directory that it is in.
    found: [[u64; 2]; 255],
    count: u8,
    align: [u8; 7],
}

/// Whether an open file is on btrfs.
#[must_use]
pub fn is_btrfs(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|about| about.f_type as u64 & 0xffff_ffff == MAGIC)
}

/// Whether an open directory is the top of a subvolume.
#[must_use]
pub fn is_subvolume(directory: impl AsFd) -> bool {
    let directory = directory.as_fd();
    let is_top = |stat: &Stat| stat.st_ino == TOP_INODE;
    rustix::fs::fstat(directory).is_ok_and(|stat| is_top(&stat)) && is_btrfs(directory)
}

/// Creates an empty subvolume in a directory. It belongs to the caller, and the caller's umask
/// decides its mode.
///
/// # Errors
/// `ENOTTY` on another file system, otherwise the kernel's error.
pub fn create(parent: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let parent = parent.as_fd();
    if !is_btrfs(parent) {
        return Err(Errno::NOTTY);
    }
    volume(parent, SUBVOL_CREATE_V2, &*arguments(name, 0, 0)?)
}

/// Copies an open subvolume to a new name in a directory of the same file system, with everything
/// that was written to it. Subvolumes in it are not copied: they become empty directories.
///
/// # Errors
/// `ENOTTY` on another file system, `EINVAL` for a directory that is no subvolume, otherwise the
/// kernel's error.
pub fn snapshot(
    source: BorrowedFd<'_>,
    parent: impl AsFd,
    name: &[u8],
    read_only: bool,
) -> Result<(), Errno> {
    let parent = parent.as_fd();
    if !is_btrfs(parent) {
        return Err(Errno::NOTTY);
    }
    let flags = if read_only { READ_ONLY } else { 0 };
    volume(parent, SNAP_CREATE_V2, &*arguments(name, source.as_raw_fd(), flags)?)
}

/// Deletes a subvolume with all its files, also one that cannot be written. The time does not grow
/// with the number of files.
///
/// # Errors
/// `ENOTEMPTY` if another subvolume is in it, `EPERM` without the privilege, otherwise the kernel's
/// error.
pub fn destroy(parent: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    volume(parent.as_fd(), SNAP_DESTROY_V2, &*arguments(name, 0, 0)?)
}

/// Allows that an open subvolume is changed.
///
/// # Errors
/// The kernel's error.
pub fn allow_writes(subvolume: impl AsFd) -> Result<(), Errno> {
    let fd = subvolume.as_fd().as_raw_fd();
    let mut flags: u64 = 0;
    // SAFETY: the kernel writes the number, which outlives the call.
    done(unsafe { libc::ioctl(fd, SUBVOL_GETFLAGS, &raw mut flags) })?;
    flags &= !READ_ONLY;
    // SAFETY: the kernel reads the number, which outlives the call.
    done(unsafe { libc::ioctl(fd, SUBVOL_SETFLAGS, &raw const flags) })
}

/// Whether other subvolumes are in an open subvolume.
///
/// # Errors
/// The kernel's error.
pub fn contains_subvolumes(subvolume: impl AsFd) -> Result<bool, Errno> {
    let fd = subvolume.as_fd().as_raw_fd();
    // SAFETY: all zeroes is a valid value of the structure.
    let mut references: Box<RootReferences> = unsafe { Box::new(std::mem::zeroed()) };
    // SAFETY: the kernel reads and writes the structure, which outlives the call.
    match done(unsafe { libc::ioctl(fd, GET_SUBVOL_ROOTREF, &raw mut *references) }) {
        // More than the structure has space for.
        Err(Errno::OVERFLOW) => Ok(true),
        Err(errno) => Err(errno),
        Ok(()) => Ok(references.count > 0),
    }
}

fn arguments(name: &[u8], fd: i32, flags: u64) -> Result<Box<VolumeArguments>, Errno> {
    if name.is_empty() || name.len() >= NAME_BYTES || name.contains(&b'/') {
        return Err(Errno::INVAL);
    }
    // SAFETY: all zeroes is a valid value of the structure.
    let mut arguments: Box<VolumeArguments> = unsafe { Box::new(std::mem::zeroed()) };
    arguments.fd = i64::from(fd);
    arguments.flags = flags;
    arguments.name[..name.len()].copy_from_slice(name);
    Ok(arguments)
}

fn volume(
    parent: BorrowedFd<'_>,
    request: libc::c_ulong,
    arguments: &VolumeArguments,
) -> Result<(), Errno> {
    // SAFETY: the kernel reads the structure, which outlives the call.
    done(unsafe { libc::ioctl(parent.as_raw_fd(), request, &raw const *arguments) })
}

fn done(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_as_long_as_the_kernels() {
        assert_eq!((size_of::<VolumeArguments>(), size_of::<RootReferences>()), (4096, 4096));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [&b""[..], b"a/b", &[b'a'; NAME_BYTES]] {
            assert!(arguments(name, 0, 0).is_err());
        }
    }
}
