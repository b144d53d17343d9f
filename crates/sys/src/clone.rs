//! A child in namespaces of its own.
//!
//! UNSAFETY: `clone3` with namespaces has no safe wrapper. The child is a copy with one thread,
//! so it may do what its single-threaded parent may.

use crate::raw::{self, CLONE_INTO_CGROUP, CloneArgs};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// All namespaces of a sandbox; its cgroup namespace is made later, when it stands in its cgroup.
pub const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET) as u64;

/// That of [`NAMESPACES`] which is not made where one was prepared.
pub const NETWORK: u64 = libc::CLONE_NEWNET as u64;

/// Those that a session with a scope has to itself, below its sandbox's.
pub const SCOPE: u64 = (libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC) as u64;

/// A process made by [`isolate`].
#[derive(Debug)]
pub struct Isolated {
    /// Its process id, as the caller sees it.
    pub pid: i32,
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
}

/// Runs `work` in a copy of this process inside new namespaces; the copy ends with its result.
///
/// # Errors
/// `EPERM` without the right to make one of them, `ENOSPC` or `EAGAIN` at a limit.
///
/// # Panics
/// Never in the caller. Must be called while the process has one thread.
pub fn isolate(
    namespaces: u64,
    cgroup: Option<BorrowedFd<'_>>,
    work: impl FnOnce() -> i32,
) -> io::Result<Isolated> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: namespaces | libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    let size = size_of::<CloneArgs>();
    // SAFETY: without CLONE_VM this is a fork; the single thread goes on in both.
    let pid =
        unsafe { raw::call(libc::SYS_clone3, [std::ptr::from_ref(&args) as usize, size, 0, 0, 0]) };
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(125);
        raw::exit(code);
    }
    if pid < 0 {
        return Err(io::Error::from_raw_os_error(-pid as i32));
    }
    // SAFETY: the kernel just made it and nobody else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Isolated { pid: pid as i32, pidfd })
}

/// A child that does nothing but hold a new user namespace open, until this is dropped.
/// It is then killed but not waited for: whoever reaps this process's children reaps it.
#[derive(Debug)]
pub struct Holder {
    /// Its process id, as the caller sees it.
    pub pid: i32,
}

extern "C" fn hold(_: usize) -> ! {
    // It holds copies of its parent's descriptors: it must not outlive a parent that is killed.
    let die = [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0];
    // SAFETY: prctl takes no pointers here.
    unsafe { raw::call(libc::SYS_prctl, die) };
    loop {
        // SAFETY: pause takes no pointers.
        unsafe { raw::call(libc::SYS_pause, [0; 5]) };
    }
}

/// Makes a user namespace owned by the caller's effective user, and a child that holds it open.
/// The child shares memory, so that it costs no copy of it.
///
/// # Errors
/// `EPERM` where user namespaces are forbidden, `ENOSPC` at a limit.
pub fn hold_userns() -> io::Result<Holder> {
    // Never freed: the child may outlive this call, and the caller is about to execute.
    let stack: &'static mut [u8] = Box::leak(vec![0_u8; 8192].into_boxed_slice());
    let aligned = (stack.as_mut_ptr() as u64).next_multiple_of(16);
    let args = CloneArgs {
        flags: (libc::CLONE_NEWUSER | libc::CLONE_VM) as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: aligned,
        stack_size: 4096,
        ..CloneArgs::default()
    };
    // SAFETY: the stack is mapped as long as this memory, and `hold` never returns.
    let pid = unsafe { raw::clone_onto(&args, hold, 0) };
    if pid < 0 {
        return Err(io::Error::from_raw_os_error(-pid as i32));
    }
    Ok(Holder { pid: pid as i32 })
}

impl Drop for Holder {
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process};
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Leaves the namespaces in `flags` for new ones. Must be called while the process has one thread.
///
/// # Errors
/// `EPERM` without the right, `ENOSPC` at a limit.
pub fn leave(flags: rustix::thread::UnshareFlags) -> Result<(), rustix::io::Errno> {
    // SAFETY: unsafe for what FILES and the like do to a program with threads; callers have one.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
