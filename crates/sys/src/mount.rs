//! Attributes of a mount: read-only, no devices, mapped ids.
//!
//! UNSAFETY: `mount_setattr(2)` has no safe wrapper.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// No file can be changed.
pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// Set-user-id bits and file capabilities are ignored.
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// Device nodes cannot be opened.
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// No file can be executed.
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;
const IDMAP: u64 = libc::MOUNT_ATTR_IDMAP;

#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Sets attributes on the mount that `tree` is the root of.
///
/// # Errors
/// `EPERM` without the privilege.
pub fn set_attributes(tree: BorrowedFd<'_>, attributes: u64, recursive: bool) -> Result<(), Errno> {
    apply(tree, &Attributes { set: attributes, clear: 0, propagation: 0, userns: 0 }, recursive)
}

/// Shows the files of a detached mount under the ids of `userns`, and sets `attributes`.
///
/// # Errors
/// `EINVAL` where the file system does not support it or the mount is attached, `EPERM` without the
/// privilege.
pub fn map_ids(tree: BorrowedFd<'_>, userns: BorrowedFd<'_>, attributes: u64) -> Result<(), Errno> {
    let userns = userns.as_raw_fd() as u64;
    apply(tree, &Attributes { set: attributes | IDMAP, clear: 0, propagation: 0, userns }, false)
}

fn apply(tree: BorrowedFd<'_>, attributes: &Attributes, recursive: bool) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a null-ended constant and the structure outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<Attributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

fn errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
