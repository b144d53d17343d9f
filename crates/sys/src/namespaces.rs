//! Namespaces: forks a child into new namespaces, and moves this process into new ones.
//!
//! UNSAFETY: `clone3` with namespaces has no safe wrapper. The child is a copy with one thread,
//! so it may do what its single-threaded parent may.

use crate::syscall::{self, CLONE_INTO_CGROUP, CloneArgs};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// The namespaces that a sandbox is created in. Its cgroup namespace is created later, once the
/// child is in its cgroup.
pub const SANDBOX_NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET) as u64;

/// The flag of [`SANDBOX_NAMESPACES`] that is left out when a network namespace was prepared.
pub const NETWORK_NAMESPACE: u64 = libc::CLONE_NEWNET as u64;

/// The namespaces of a session with a scope, below those of its sandbox.
pub const SCOPE_NAMESPACES: u64 =
    (libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC) as u64;

/// A process created by [`fork_in_namespaces`].
#[derive(Debug)]
pub struct ForkedChild {
    /// The process id of the child, as the caller sees it.
    pub pid: i32,
    /// Readable once the child has ended.
    pub pidfd: OwnedFd,
}

/// Runs `work` in a copy of this process inside new namespaces; the copy ends with its result.
///
/// # Errors
/// `EPERM` without the privilege to create one of them, `ENOSPC` or `EAGAIN` at a limit.
///
/// # Panics
/// Never in the caller. Must be called while the process has one thread.
pub fn fork_in_namespaces(
    namespaces: u64,
    cgroup: Option<BorrowedFd<'_>>,
    work: impl FnOnce() -> i32,
) -> io::Result<ForkedChild> {
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
    let pid = unsafe {
        syscall::syscall(libc::SYS_clone3, [std::ptr::from_ref(&args) as usize, size, 0, 0, 0])
    };
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(125);
        syscall::exit(code);
    }
    if pid < 0 {
        return Err(io::Error::from_raw_os_error(-pid as i32));
    }
    // SAFETY: the kernel has just created it, and nothing else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(ForkedChild { pid: pid as i32, pidfd })
}

/// A child that only keeps a new user namespace alive until this value is dropped. The child is
/// then killed but not waited for: the code that reaps this process's children reaps it.
#[derive(Debug)]
pub struct PinnedUserns {
    /// The process id of the child, as the caller sees it.
    pub pid: i32,
    stack: Option<Stack>,
}

/// The stack of a pinning child. Never freed: the child may outlive the caller's use of it, and the
/// caller may be about to execute.
type Stack = &'static mut [u8];

/// The size of a stack in bytes, with space to align it.
const STACK_BYTES: usize = 8192;

/// A stack that was given up, and the child that was killed on it.
struct UsedStack {
    pid: i32,
    stack: Stack,
}

/// Stacks to use again once their child is gone, so that the memory of the launcher does not grow
/// with each sandbox.
static USED_STACKS: Mutex<Vec<UsedStack>> = Mutex::new(Vec::new());

fn take_stack() -> Stack {
    let mut used = USED_STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    // An id that another process has by now only delays the use of the stack. In a forked child, the
    // stacks are copies that nothing else uses.
    let gone = |one: &UsedStack| {
        Pid::from_raw(one.pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    };
    match used.iter().position(gone) {
        Some(index) => used.swap_remove(index).stack,
        None => Box::leak(vec![0_u8; STACK_BYTES].into_boxed_slice()),
    }
}

extern "C" fn pin_main(_: usize) -> ! {
    // The child has copies of its parent's descriptors, so it must not outlive a killed parent.
    let die = [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0];
    // SAFETY: prctl takes no pointers here.
    unsafe { syscall::syscall(libc::SYS_prctl, die) };
    loop {
        // SAFETY: without descriptors, ppoll reads none of its pointers, which are null.
        unsafe { syscall::syscall(libc::SYS_ppoll, [0; 5]) };
    }
}

/// Creates a user namespace that the caller's effective user owns, and a child that keeps it alive.
/// The child shares the caller's memory, so that no page table is copied.
///
/// # Errors
/// `EPERM` where user namespaces are forbidden, `ENOSPC` at a limit.
pub fn pin_userns() -> io::Result<PinnedUserns> {
    let stack = take_stack();
    let aligned = (stack.as_mut_ptr() as u64).next_multiple_of(16);
    let args = CloneArgs {
        flags: (libc::CLONE_NEWUSER | libc::CLONE_VM) as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: aligned,
        stack_size: 4096,
        ..CloneArgs::default()
    };
    // SAFETY: the stack is mapped as long as this memory, and `pin_main` never returns.
    let pid = unsafe { syscall::clone_onto(&args, pin_main, 0) };
    if pid < 0 {
        return Err(io::Error::from_raw_os_error(-pid as i32));
    }
    Ok(PinnedUserns { pid: pid as i32, stack: Some(stack) })
}

impl Drop for PinnedUserns {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if let Some(stack) = self.stack.take() {
            let mut used = USED_STACKS.lock().unwrap_or_else(PoisonError::into_inner);
            used.push(UsedStack { pid: self.pid, stack });
        }
    }
}

/// Moves this process into new namespaces of the kinds in `flags`. Must be called while the process
/// has one thread.
///
/// # Errors
/// `EPERM` without the privilege, `ENOSPC` at a limit.
pub fn unshare(flags: rustix::thread::UnshareFlags) -> Result<(), rustix::io::Errno> {
    // SAFETY: `FILES` and similar flags are unsound in a program with threads; callers are
    // single-threaded.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
