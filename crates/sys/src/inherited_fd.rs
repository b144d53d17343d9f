//! Descriptors that this process was started with, and those that it leaves to the next program.
//!
//! UNSAFETY: only the caller knows that a number is open and that nothing else owns it.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes ownership of an inherited descriptor and marks it close-on-exec.
///
/// # Errors
/// `EBADF` when it is not open.
pub fn adopt(number: RawFd) -> Result<OwnedFd, rustix::io::Errno> {
    // SAFETY: only used to ask the kernel whether the number is open.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: open, passed to this process on its command line, and taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: RawFd) {
    // SAFETY: callers do this before they open anything.
    unsafe { libc::close_range(first as u32, u32::MAX, 0) };
}

/// Duplicates `source` onto the number `target`, whatever `target` was. The copy survives `exec`.
///
/// # Errors
/// `EBADF` when `target` is out of range.
pub fn dup_to(source: std::os::fd::BorrowedFd<'_>, target: RawFd) -> Result<(), rustix::io::Errno> {
    use std::os::fd::AsRawFd;
    // SAFETY: no pointers. Callers are about to execute, so the owner of `target` does not run
    // again.
    let result = unsafe { libc::dup3(source.as_raw_fd(), target, 0) };
    if result == target { Ok(()) } else { Err(rustix::io::Errno::BADF) }
}

/// Marks every descriptor from `first` on close-on-exec.
pub fn set_cloexec_from(first: RawFd) {
    // SAFETY: no pointers; changes no descriptor's meaning.
    unsafe { libc::close_range(first as u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
}
