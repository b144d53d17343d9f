//! Executing a program by its descriptor.
//!
//! UNSAFETY: `fexecve(3)` has no safe wrapper.

use std::ffi::{CStr, c_char};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Becomes the program that `file` is open on. Returns only with an error.
#[must_use]
pub fn execute(file: BorrowedFd<'_>, argv: &[&CStr], envp: &[&CStr]) -> io::Error {
    let pointers = |texts: &[&CStr]| -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let argv = pointers(argv);
    let envp = pointers(envp);
    // SAFETY: both lists end in null and outlive the call, as do the strings.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Resets every signal to its default action and unblocks all.
pub fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is no function of ours; KILL and STOP refuse and need nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an all-zero set is an empty one.
    unsafe {
        let none: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Lets the kernel reap children that end (`SIGCHLD` is ignored).
pub fn autoreap_children() {
    // SAFETY: SIG_IGN is no function of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}
