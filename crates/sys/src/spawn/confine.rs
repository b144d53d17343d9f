//! The system calls between `clone` and `exec`, by which a child of the agent becomes the tenant.
//!
//! UNSAFETY: runs in memory shared with the agent. Nothing here allocates, logs, reads the
//! environment or sets `errno`; every call is in this file.

use super::plan::{Plan, Stage};
use crate::pty;
use crate::syscall::syscall;
use std::os::fd::{AsRawFd, RawFd};

/// Targets of inherited descriptors lie below this; copies are made above it.
pub(crate) const FD_FLOOR: usize = 64;
/// The most descriptors that one child inherits.
pub(crate) const FDS_MAX: usize = 16;

/// The arguments of `execve`, in memory that the child may read.
pub(crate) struct ExecArgs<'a> {
    pub(crate) plan: &'a Plan<'a>,
    /// Pointers to `plan.argv`, ended by null.
    pub(crate) argv: &'a [*const libc::c_char],
    /// Pointers to `plan.envp`, ended by null.
    pub(crate) envp: &'a [*const libc::c_char],
}

/// `CAP_CHECKPOINT_RESTORE`, the last capability that the kernel defines.
const CAP_LAST_CAP: usize = 40;
/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64 bits.
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

type Failed = (Stage, i32);

fn check(result: isize) -> Result<usize, Failed> {
    usize::try_from(result).map_err(|_| (Stage::Confine, -result as i32))
}

/// Makes every call up to, but not including, the execution.
///
/// # Safety
/// Only in a fresh child that has one thread.
pub(crate) unsafe fn confine(plan: &Plan<'_>, filter: Option<&[u64]>) -> Result<(), Failed> {
    // SAFETY: every pointer handed to the kernel points into `plan` or this frame.
    unsafe {
        check(syscall(libc::SYS_setsid, [0; 5]))?;
        for tasks in &plan.tasks {
            check(syscall(
                libc::SYS_write,
                [tasks.as_raw_fd() as usize, b"0".as_ptr() as usize, 1, 0, 0],
            ))?;
        }
        let copies = dup_above_floor(plan)?;
        set_identity(plan)?;
        check(syscall(libc::SYS_umask, [plan.umask as usize, 0, 0, 0, 0]))?;
        if let Some(cwd) = &plan.cwd {
            check(syscall(libc::SYS_chdir, [cwd.as_ptr() as usize, 0, 0, 0, 0]))
                .map_err(|(_, errno)| (Stage::Cwd, errno))?;
        }
        let failed = |errno| (Stage::Terminal, errno);
        let terminal = match &plan.terminal {
            Some(terminal) => Some(pty::open(terminal, FD_FLOOR).map_err(failed)?),
            None => None,
        };
        install_fds(plan, &copies)?;
        if let Some(fd) = terminal {
            for number in 0..3 {
                check(syscall(libc::SYS_dup3, [fd, number, 0, 0, 0]))?;
            }
            pty::control(0).map_err(failed)?;
        }
        reset_signals()?;
        if let Some(filter) = filter {
            install_filter(filter)?;
        }
    }
    Ok(())
}

/// Duplicates every inherited descriptor above the floor, so that no target overwrites a source.
unsafe fn dup_above_floor(plan: &Plan<'_>) -> Result<[usize; FDS_MAX], Failed> {
    let mut copies = [0; FDS_MAX];
    // SAFETY: fcntl and dup3 take no pointers here.
    unsafe {
        for (copy, (source, _)) in copies.iter_mut().zip(&plan.fds) {
            let args = [*source as usize, libc::F_DUPFD_CLOEXEC as usize, FD_FLOOR, 0, 0];
            *copy = check(syscall(libc::SYS_fcntl, args))?;
        }
    }
    Ok(copies)
}

/// Joins the user namespace, and sets ids and capabilities.
unsafe fn set_identity(plan: &Plan<'_>) -> Result<(), Failed> {
    let Some(userns) = plan.userns else { return Ok(()) };
    let uid = plan.uid as usize;
    let gid = plan.gid as usize;
    // SAFETY: capset reads the two structures below; the others take no pointers.
    unsafe {
        let join = [userns.as_raw_fd() as usize, libc::CLONE_NEWUSER as usize, 0, 0, 0];
        check(syscall(libc::SYS_setns, join))?;
        for capability in 0..=CAP_LAST_CAP {
            if plan.capabilities & (1 << capability) == 0 {
                let drop = [libc::PR_CAPBSET_DROP as usize, capability, 0, 0, 0];
                // A kernel that does not know the capability returns EINVAL: there is nothing to
                // drop.
                syscall(libc::SYS_prctl, drop);
            }
        }
        check(syscall(libc::SYS_setgroups, [0, 0, 0, 0, 0]))?;
        check(syscall(libc::SYS_setresgid, [gid, gid, gid, 0, 0]))?;
        check(syscall(libc::SYS_setresuid, [uid, uid, uid, 0, 0]))?;
        let permitted = if plan.uid == 0 { plan.capabilities } else { 0 };
        let low = permitted as u32;
        let high = (permitted >> 32) as u32;
        // Effective, permitted and inheritable, first of the capabilities below 32.
        let head: [u32; 2] = [LINUX_CAPABILITY_VERSION_3, 0];
        let sets: [u32; 6] = [low, low, 0, high, high, 0];
        check(syscall(
            libc::SYS_capset,
            [head.as_ptr() as usize, sets.as_ptr() as usize, 0, 0, 0],
        ))?;
        let privileges = [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0];
        check(syscall(libc::SYS_prctl, privileges))?;
    }
    Ok(())
}

/// Duplicates the copies onto their targets. All others are close-on-exec.
unsafe fn install_fds(plan: &Plan<'_>, copies: &[usize; FDS_MAX]) -> Result<(), Failed> {
    // SAFETY: no pointers.
    unsafe {
        check(syscall(
            libc::SYS_close_range,
            [0, u32::MAX as usize, libc::CLOSE_RANGE_CLOEXEC as usize, 0, 0],
        ))?;
        for (copy, (_, target)) in copies.iter().zip(&plan.fds) {
            check(syscall(libc::SYS_dup3, [*copy, *target as usize, 0, 0, 0]))?;
        }
    }
    Ok(())
}

/// Unblocks all signals, and resets them to their default actions.
unsafe fn reset_signals() -> Result<(), Failed> {
    let none: u64 = 0;
    // The kernel's sigaction: handler, flags, restorer, mask. All zero is the default action.
    let default: [u64; 4] = [0; 4];
    // SAFETY: both values live in this frame and have the kernel's sizes.
    unsafe {
        for signal in 1..=64_usize {
            // Fails for KILL and STOP, which always have their default action.
            syscall(libc::SYS_rt_sigaction, [signal, default.as_ptr() as usize, 0, 8, 0]);
        }
        let mask = [libc::SIG_SETMASK as usize, std::ptr::from_ref(&none) as usize, 0, 8, 0];
        check(syscall(libc::SYS_rt_sigprocmask, mask))?;
    }
    Ok(())
}

/// Installs the seccomp program of the tenant.
unsafe fn install_filter(filter: &[u64]) -> Result<(), Failed> {
    #[repr(C)]
    struct SockFprog {
        count: u16,
        filters: *const u64,
    }
    let program = SockFprog { count: filter.len() as u16, filters: filter.as_ptr() };
    // SAFETY: the kernel copies the program; a sock_filter is 8 bytes.
    unsafe {
        let args = [
            libc::SECCOMP_SET_MODE_FILTER as usize,
            0,
            std::ptr::from_ref(&program) as usize,
            0,
            0,
        ];
        check(syscall(libc::SYS_seccomp, args))?;
    }
    Ok(())
}

/// Closes every descriptor that is not a target in `fds`, in a fork that does not execute.
pub(crate) fn close_unlisted(fds: &[(RawFd, RawFd)]) {
    let mut from = 0;
    let mut targets = [RawFd::MAX; FDS_MAX];
    for (slot, (_, target)) in targets.iter_mut().zip(fds) {
        *slot = *target;
    }
    targets.sort_unstable();
    for target in targets.into_iter().take(fds.len()) {
        close_between(from, target - 1);
        from = target + 1;
    }
    close_between(from, RawFd::MAX);
}

fn close_between(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: no pointers; only descriptors of this copy are closed.
        unsafe { syscall(libc::SYS_close_range, [first as usize, last as usize, 0, 0, 0]) };
    }
}

/// Executes the first program that exists. Returns only with an error.
///
/// # Safety
/// As [`confine`].
pub(crate) unsafe fn execute(exec: &ExecArgs<'_>) -> Failed {
    let mut worst = libc::ENOENT;
    for program in &exec.plan.programs {
        // SAFETY: all three are null-ended and outlive the call.
        let result = unsafe {
            let program = program.as_ptr() as usize;
            let argv = exec.argv.as_ptr() as usize;
            let envp = exec.envp.as_ptr() as usize;
            syscall(libc::SYS_execve, [program, argv, envp, 0, 0])
        };
        match -result as i32 {
            libc::ENOENT | libc::ENOTDIR => {}
            // A later directory of PATH may have a program that may be executed.
            libc::EACCES => worst = libc::EACCES,
            errno => return (Stage::Exec, errno),
        }
    }
    (Stage::Exec, worst)
}
