//! Starting a tenant's process from the agent, without ever stopping the agent.
//!
//! UNSAFETY: the child shares the agent's memory until it executes (`CLONE_VM` without
//! `CLONE_VFORK`), so that no page table is copied and the agent never waits: a tenant could stop
//! the half-started child for as long as it likes, and only that start would hang. Everything the
//! child touches is kept alive by [`Child`] until it has executed or died; the child itself calls
//! the kernel directly, allocates nothing, and touches no thread-local value (errno included).

use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// What to start, and as whom.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The program: an absolute path, or one with a slash. Tried in order until one exists.
    pub programs: Vec<CString>,
    /// Its arguments, the first being its name.
    pub argv: Vec<CString>,
    /// Its environment, `NAME=value`.
    pub envp: Vec<CString>,
    /// Start directory; the child fails with the kernel's answer when it cannot be entered.
    pub cwd: Option<CString>,
    /// Descriptors it gets: ours, and the number in the child. All others are closed.
    pub fds: Vec<(RawFd, RawFd)>,
    /// User namespace to join before the ids are set.
    pub userns: Option<BorrowedFd<'a>>,
    /// User and group id inside.
    pub uid: u32,
    /// cgroup v2 directory to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// cgroup v1 `tasks` files to write `0` to.
    pub tasks: Vec<BorrowedFd<'a>>,
    /// Bits of the capabilities that stay in the bounding set. Ignored without `userns`.
    pub capabilities: u64,
    /// The seccomp program to take last, as raw `sock_filter`s.
    pub filter: Option<&'a [u64]>,
    /// File creation mask.
    pub umask: u32,
}

/// A started process.
#[derive(Debug)]
pub struct Child {
    /// Its process id, as the agent sees it.
    pub pid: i32,
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
    /// Readable when it has executed (end of file) or failed to (see [`Child::verdict`]).
    pub started: OwnedFd,
}

/// Starts `plan`. Returns at once; the child may still fail, which [`Child::verdict`] tells.
///
/// # Errors
/// `EAGAIN` when a limit on processes is reached, `ENOMEM`, `EMFILE`.
pub fn spawn(_plan: Plan<'_>) -> io::Result<Child> {
    todo!()
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Joining the cgroups, the namespace, or setting ids and filter.
    Confine,
    /// Entering the start directory.
    Cwd,
    /// Executing the program.
    Exec,
}

impl Child {
    /// What became of the start: `None` while undecided, then `Some(Ok)` once it has executed or
    /// `Some(Err)` with the stage and the kernel's answer. Does not block.
    pub fn verdict(&mut self) -> Option<Result<(), (Stage, rustix::io::Errno)>> {
        todo!()
    }
}

/// Forks a copy of this process that becomes the tenant as [`spawn`] would, but instead of
/// executing calls `work` and ends with its result as exit code. For calls that may block.
/// Only descriptors in `plan.fds` stay open, under their numbers in the child.
/// Allocation is fine in `work`: the caller is single-threaded and the memory is a copy.
///
/// # Errors
/// As [`spawn`]. A child that could not confine itself ends with exit code 125.
pub fn fork(_plan: Plan<'_>, _work: impl FnOnce() -> i32) -> io::Result<Child> {
    todo!()
}
