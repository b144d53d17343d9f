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

/// Whether a stopped process stands at the end of the `rt_sigaction` that gave `signal` a new
/// handler: the handler is installed, and the program has not seen the previous one yet. The kernel
/// delivers signals at the end of a system call, so a process that was stopped among many short
/// calls stands there far more often than its instructions suggest. False if the kernel does not
/// say.
#[must_use]
pub fn has_just_set_handler(pid: i32, signal: i32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/syscall")) else { return false };
    let mut words = text.split_ascii_whitespace();
    let call = words.next().and_then(|number| number.parse().ok());
    let mut argument = || {
        let digits = words.next()?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let of_signal = argument().is_some_and(|number| number == u64::from(signal.unsigned_abs()));
    // The second argument is the new handler, or null where the program only asks.
    call == Some(libc::SYS_rt_sigaction) && of_signal && argument().is_some_and(|new| new != 0)
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
