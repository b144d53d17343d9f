//! The process at the other end of a unix socket.
//!
//! UNSAFETY: rustix's credentials hold a process id that cannot be zero, but zero is the
//! process id of a peer outside our pid namespace.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Process id of the peer, 0 when it is outside this pid namespace.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is not a socket.
pub fn pid(socket: impl AsFd) -> io::Result<i32> {
    let mut cred = libc::ucred { pid: -1, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to values of this frame, with their correct length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(cred.pid) }
}
