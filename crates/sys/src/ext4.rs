//! Requests to a mounted ext4 file system.
//!
//! UNSAFETY: its ioctls have no safe wrapper.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// The request of `linux/ext4.h`, which libc does not define.
const EXT4_IOC_CHECKPOINT: libc::c_ulong = 0x4004_662b;

/// Writes everything in the journal to its place, so that the journal is empty.
///
/// # Errors
/// `ENOTTY` for another file system, `EPERM` without the privilege, otherwise the kernel's error.
pub fn checkpoint(file: impl AsFd) -> Result<(), Errno> {
    let flags: u32 = 0;
    // SAFETY: the kernel reads the number, which outlives the call.
    let result =
        unsafe { libc::ioctl(file.as_fd().as_raw_fd(), EXT4_IOC_CHECKPOINT, &raw const flags) };
    match result {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
        }
    }
}
