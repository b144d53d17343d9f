//! The agent of the sandbox that a scope is started in.

use crate::cgroup::Cgroups;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// The number under which a sandbox's agent inherited the tenant's user namespace (`--userns`).
const AGENT_USERNS_FD: i32 = 4;

/// The agent of a running sandbox, and descriptors that lead into the sandbox.
pub(super) struct SandboxAgent {
    pub(super) pidfd: OwnedFd,
    /// The tenant's user namespace.
    pub(super) userns: OwnedFd,
    /// The directory `/workspace` as the sandbox sees it.
    pub(super) workspace: OwnedFd,
}

impl SandboxAgent {
    /// Opens the only process of the agent's control group. The kernel may reuse its process id at
    /// any time, so everything later goes through descriptors.
    ///
    /// # Errors
    /// `ESRCH` when the agent has ended.
    pub(super) fn open(cgroups: &Cgroups) -> Result<Self, Errno> {
        let listed = || {
            let text = std::fs::read_to_string(cgroups.agent().join("cgroup.procs")).ok()?;
            text.lines().next()?.parse().ok()
        };
        let pid: i32 = listed().ok_or(Errno::SRCH)?;
        let pidfd = pidfd_open(Pid::from_raw(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        let path = format!("/proc/{pid}/fd/{AGENT_USERNS_FD}");
        let userns = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let path = format!("/proc/{pid}/root/workspace");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let workspace = rustix::fs::open(path, flags, Mode::empty())?;
        // The id is still listed after the last open, so no other process had it in between.
        let unchanged = listed() == Some(pid);
        unchanged.then_some(Self { pidfd, userns, workspace }).ok_or(Errno::SRCH)
    }
}
