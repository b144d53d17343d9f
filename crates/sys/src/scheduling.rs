//! How the kernel schedules this process.
//!
//! UNSAFETY: `sched_setscheduler(2)` has no safe wrapper, and musl's only reports `ENOSYS`.

use std::io;

/// Runs the calling thread before all normal processes of the machine, with the lowest real-time
/// priority. Its children are normal processes again.
///
/// # Errors
/// The kernel's: `EPERM` without the capability `CAP_SYS_NICE`, or in a control group without
/// real-time processor time.
pub fn become_real_time() -> io::Result<()> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: all zeroes is a valid value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the kernel reads the structure, which outlives the call; 0 is the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
