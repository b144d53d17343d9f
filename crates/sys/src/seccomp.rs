//! Taking a filter.
//!
//! UNSAFETY: `seccomp(2)` has no safe wrapper.

use std::io;

/// Takes `program` (raw `sock_filter`s) for this thread and all its children, for ever.
/// The thread must have given up new privileges.
///
/// # Errors
/// `EINVAL` for a program that is malformed or longer than 4,096 steps.
pub fn install(program: &[u64]) -> io::Result<()> {
    #[repr(C)]
    struct Program {
        count: u16,
        filters: *const u64,
    }
    const SET_MODE_FILTER: libc::c_ulong = 1;
    let count = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = Program { count, filters: program.as_ptr() };
    // SAFETY: the kernel copies the program; a sock_filter is 8 bytes.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
