//! What to start: the program, its identity, and what it inherits.

use crate::pty::Terminal;
use std::ffi::CString;
use std::os::fd::{BorrowedFd, RawFd};

/// What to start, and as whom.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The program: paths with a slash, tried in order until one exists.
    pub programs: Vec<CString>,
    /// Its arguments, the first being its name.
    pub argv: Vec<CString>,
    /// Its environment, `NAME=value`.
    pub envp: Vec<CString>,
    /// Start directory. The child fails with the kernel's error when it cannot be entered.
    pub cwd: Option<CString>,
    /// Descriptors that it inherits: our number, and the number in the child (below 64, at most 16 of
    /// them). All others are closed.
    pub fds: Vec<(RawFd, RawFd)>,
    /// User namespace to join before the ids are set. Without it, ids and capabilities stay.
    pub userns: Option<BorrowedFd<'a>>,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// cgroup v2 directory that the process is created in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// cgroup v1 `tasks` files to write `0` to.
    pub tasks: Vec<BorrowedFd<'a>>,
    /// Bits of the capabilities that stay in the bounding set. Ignored without `userns`.
    pub capabilities: u64,
    /// The seccomp program, installed last, as raw `sock_filter`s.
    pub filter: Option<&'a [u64]>,
    /// File creation mask.
    pub umask: u32,
    /// A terminal that it opens as its standard input, output and error.
    pub terminal: Option<Terminal<'a>>,
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Joining the cgroups, the namespace, or setting ids and filter.
    Confine = 1,
    /// Entering the start directory.
    Cwd = 2,
    /// Executing the program.
    Exec = 3,
    /// Opening its terminal.
    Terminal = 4,
}
