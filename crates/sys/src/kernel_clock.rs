//! The state of the kernel's clock.
//!
//! UNSAFETY: `adjtimex(2)` has no safe wrapper.

use std::io;

/// Whether a time service keeps the kernel's clock synchronised. Changes nothing.
///
/// # Errors
/// The kernel's; some containers refuse the call.
pub fn is_synchronized() -> io::Result<bool> {
    // SAFETY: all zeroes is a valid value, and asks for no change.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the structure, which outlives the call.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0),
    }
}
