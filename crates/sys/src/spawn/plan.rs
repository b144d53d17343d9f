//! The plan of a start: the program, its identity, and the descriptors that it inherits.

use crate::pty::Terminal;
use std::ffi::CString;
use std::os::fd::{BorrowedFd, RawFd};

/// The program to start, its identity, and its descriptors. It has more than twelve fields, because
/// a process has that many independent properties.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The program: paths with a slash, tried in order until one exists.
    pub programs: Vec<CString>,
    /// The arguments, beginning with the name of the program.
    pub argv: Vec<CString>,
    /// The environment, as `NAME=value` texts.
    pub envp: Vec<CString>,
    /// The start directory. The start fails with the kernel's error when it cannot be entered.
    pub cwd: Option<CString>,
    /// Descriptors that it inherits: our number, and the number in the child (below 64, at most 16
    /// of them). All others are closed.
    pub fds: Vec<(RawFd, RawFd)>,
    /// User namespace to join before the ids are set. Without it, ids and capabilities stay.
    pub userns: Option<BorrowedFd<'a>>,
    /// The user id in the user namespace.
    pub uid: u32,
    /// The group id in the user namespace.
    pub gid: u32,
    /// The cgroup v2 directory that the process is created in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The cgroup v1 `tasks` files that the child writes `0` to, to join their groups.
    pub tasks: Vec<BorrowedFd<'a>>,
    /// Bits of the capabilities that stay in the bounding set. Ignored without `userns`.
    pub capabilities: u64,
    /// The seccomp program, installed last, as raw `sock_filter`s.
    pub filter: Option<&'a [u64]>,
    /// The file creation mask (`umask`).
    pub umask: u32,
    /// A terminal that it opens as its standard input, output and error.
    pub terminal: Option<Terminal<'a>>,
}

/// The stage at which a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Joining the cgroups, the namespace, or setting ids and filter.
    Confine = 1,
    /// Entering the start directory.
    Cwd = 2,
    /// Executing one of the programs.
    Exec = 3,
    /// Opening or sending the terminal.
    Terminal = 4,
}
