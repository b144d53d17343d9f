//! Signals of the agent: `SIGCHLD` as a descriptor, and sending any signal by number.
//!
//! UNSAFETY: signalfd and the mask have no safe wrapper, nor has a real-time signal's number.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A descriptor that is readable when a child has ended. Blocks `SIGCHLD` for the calling thread;
/// [`crate::spawn`] gives its children an empty mask.
///
/// # Errors
/// `EMFILE`, `ENOMEM`.
pub fn sigchld_fd() -> io::Result<OwnedFd> {
    // SAFETY: the set lives in this frame; the descriptor is new, and nothing else owns it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Sends `signal` (1 to 64) to a process, or to a group when `pid` is negative. 0 and -1, which
/// mean the caller's own group and every process, are refused.
///
/// # Errors
/// `ESRCH` when the process has ended, `EPERM`, `EINVAL` for a bad number.
pub fn send(pid: i32, signal: i32) -> io::Result<()> {
    if pid == 0 || pid == -1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: takes no pointers.
    if unsafe { libc::kill(pid, signal) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
