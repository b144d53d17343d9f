//! Starts a tenant's process from the agent, without ever blocking the agent.
//!
//! UNSAFETY: the child shares the agent's memory until it executes (`CLONE_VM` without
//! `CLONE_VFORK`), so that no page table is copied and the agent never waits: a tenant could stop
//! the half-started child for as long as it likes, and only that start would hang. Everything the
//! child touches is kept alive by [`Child`] until it has executed or died; the child itself calls
//! the kernel directly, allocates nothing, and touches no thread-local value (errno included).

mod confine;
mod plan;

pub use plan::{Plan, Stage};

use crate::pty::Terminal;
use crate::syscall::{self, CLONE_INTO_CGROUP, CloneArgs};
use confine::{ExecArgs, FDS_MAX};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Stack of a child until it executes: a few small frames.
const STACK_BYTES: usize = 32 * 1024;

/// A process that [`spawn`] or [`fork`] started.
#[derive(Debug)]
pub struct Child {
    /// The process id, as the agent sees it.
    pub pid: i32,
    /// Readable once the process has ended.
    pub pidfd: OwnedFd,
    /// Readable once the program was executed (end of file) or failed to (see
    /// [`Child::exec_result`]).
    pub started: OwnedFd,
    shared: Option<Box<ChildMemory>>,
}

/// The memory of the agent that the child uses until it executes.
#[derive(Debug)]
struct ChildMemory {
    plan: Plan<'static>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    filter: Option<Vec<u64>>,
    stack: Stack,
    stage: AtomicI32,
    errno: AtomicI32,
}

#[derive(Debug)]
struct Stack(*mut libc::c_void);

impl Stack {
    fn new() -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::STACK;
        // SAFETY: a new anonymous mapping aliases nothing.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                STACK_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        Ok(Self(at))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: ours, mapped with this length; a `ChildMemory` is dropped only when no child runs
        // on it.
        let _ = unsafe { rustix::mm::munmap(self.0, STACK_BYTES) };
    }
}

/// Starts `plan`. Returns at once. The child may still fail: see [`Child::exec_result`].
///
/// # Errors
/// `EAGAIN` when a limit on processes is reached, `ENOMEM`, `EMFILE`; `EINVAL` for more
/// descriptors than 16.
pub fn spawn(plan: Plan<'_>) -> io::Result<Child> {
    if plan.fds.len() > FDS_MAX || plan.programs.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let (started, hold) = exec_pipe()?;
    let shared = own_plan(plan)?;
    let mut pidfd: RawFd = -1;
    let mut args = clone_args(&shared.plan, &mut pidfd);
    args.flags |= libc::CLONE_VM as u64;
    args.stack = shared.stack.0 as u64;
    args.stack_size = STACK_BYTES as u64;
    // SAFETY: the stack is mapped and unused, `shared` outlives the child's use of it (see
    // `Child`), and `child_main` never returns.
    let pid =
        unsafe { syscall::clone_onto(&args, child_main, std::ptr::from_ref(&*shared) as usize) };
    drop(hold);
    into_child(pid, pidfd, started, Some(shared))
}

/// A pipe whose write end the child holds until it has executed. Its number is above all targets of
/// inherited descriptors: if one of these replaced it, the pipe would report the execution too
/// early, and the child's stack would be freed while it is in use.
fn exec_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (started, hold) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let hold = rustix::io::fcntl_dupfd_cloexec(&hold, confine::FD_FLOOR as RawFd)?;
    Ok((started, hold))
}

/// Copies everything that the plan borrows. For descriptors the number is enough, because the clone
/// copies them.
fn own_plan(plan: Plan<'_>) -> io::Result<Box<ChildMemory>> {
    let filter = plan.filter.map(<[u64]>::to_vec);
    // SAFETY: the numbers are read by the clone and by the child's copy of the table, which is made
    // at the clone; the borrow in the caller outlives that moment.
    let reborrow = |fd: BorrowedFd<'_>| unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
    let pointers = |strings: &[CString]| {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    Ok(Box::new(ChildMemory {
        argv: pointers(&plan.argv),
        envp: pointers(&plan.envp),
        filter,
        stack: Stack::new()?,
        stage: AtomicI32::new(0),
        errno: AtomicI32::new(0),
        plan: Plan {
            userns: plan.userns.map(reborrow),
            cgroup: plan.cgroup.map(reborrow),
            tasks: plan.tasks.into_iter().map(reborrow).collect(),
            terminal: plan
                .terminal
                .map(|terminal| Terminal { handover: reborrow(terminal.handover), ..terminal }),
            filter: None,
            programs: plan.programs,
            argv: plan.argv,
            envp: plan.envp,
            cwd: plan.cwd,
            fds: plan.fds,
            ..plan
        },
    }))
}

fn clone_args(plan: &Plan<'_>, pidfd: &mut RawFd) -> CloneArgs {
    let mut args = CloneArgs {
        flags: libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = plan.cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    args
}

fn into_child(
    pid: isize,
    pidfd: RawFd,
    started: OwnedFd,
    shared: Option<Box<ChildMemory>>,
) -> io::Result<Child> {
    if pid < 0 {
        return Err(io::Error::from_raw_os_error(-pid as i32));
    }
    // SAFETY: the kernel has just created it, and nothing else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Child { pid: pid as i32, pidfd, started, shared })
}

/// The child's entry point, on a stack of its own in shared memory.
extern "C" fn child_main(arg: usize) -> ! {
    // SAFETY: `spawn` passes a `ChildMemory` that lives until this process has executed or ended.
    let shared = unsafe { &*(arg as *const ChildMemory) };
    let plan = &shared.plan;
    // SAFETY: a fresh child with one thread; see the modules' headers.
    let (stage, errno) = unsafe {
        match confine::confine(plan, shared.filter.as_deref()) {
            Ok(()) => confine::execute(&ExecArgs { plan, argv: &shared.argv, envp: &shared.envp }),
            Err(failed) => failed,
        }
    };
    shared.errno.store(errno, Ordering::Relaxed);
    shared.stage.store(stage as i32, Ordering::Release);
    syscall::exit(127)
}

impl Child {
    /// The result of the execution: `None` while it is pending, `Some(Ok)` once the child has
    /// executed (or was killed before), `Some(Err)` with the failed stage and the kernel's error.
    /// Does not block.
    pub fn exec_result(&mut self) -> Option<Result<(), (Stage, Errno)>> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.started, PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&now)), Ok(1..)) {
            return None;
        }
        // The write end closed: the child no longer uses our memory.
        let shared = self.shared.take()?;
        let stage = match shared.stage.load(Ordering::Acquire) {
            0 => return Some(Ok(())),
            1 => Stage::Confine,
            2 => Stage::Cwd,
            4 => Stage::Terminal,
            _ => Stage::Exec,
        };
        Some(Err((stage, Errno::from_raw_os_error(shared.errno.load(Ordering::Relaxed)))))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.shared.is_some() && self.exec_result().is_none() {
            // The child may still run on this memory, so it is leaked and not freed.
            std::mem::forget(self.shared.take());
        }
    }
}

/// Forks a copy of this process that becomes the tenant as with [`spawn`], but calls `work` instead
/// of executing a program, and ends with its result as exit code. For calls that may block. Only
/// descriptors in `plan.fds` stay open, under their numbers in the child. Allocation is fine in
/// `work`: the caller is single-threaded and the memory is a copy.
///
/// # Errors
/// As [`spawn`]. A child that could not confine itself ends with exit code 125.
pub fn fork(plan: Plan<'_>, work: impl FnOnce() -> i32) -> io::Result<Child> {
    if plan.fds.len() > FDS_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let (started, hold) = exec_pipe()?;
    let mut pidfd: RawFd = -1;
    let args = clone_args(&plan, &mut pidfd);
    // SAFETY: without CLONE_VM this is a fork; the single thread goes on in both.
    let pid = unsafe {
        syscall::syscall(
            libc::SYS_clone3,
            [std::ptr::from_ref(&args) as usize, size_of::<CloneArgs>(), 0, 0, 0],
        )
    };
    if pid == 0 {
        forked_main(&plan, work);
    }
    drop(hold);
    into_child(pid, pidfd, started, None)
}

/// The child's side of [`fork`].
fn forked_main(plan: &Plan<'_>, work: impl FnOnce() -> i32) -> ! {
    // SAFETY: a fresh child with one thread and memory of its own.
    if unsafe { confine::confine(plan, plan.filter) }.is_err() {
        syscall::exit(125);
    }
    confine::close_unlisted(&plan.fds);
    let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(125);
    syscall::exit(code)
}
