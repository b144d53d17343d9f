//! Creates namespaces: each kind alone, and all of a sandbox at once as the launcher does.

use super::child::{in_child, wait};
use crate::child::step_error::{StepError, at_step};
use crate::config::{AGENT_UID, UID_BASE};
use crate::host::ucounts;
use isolet_sys::namespaces::{SANDBOX_NAMESPACES, fork_in_namespaces};
use rustix::io::Errno;

/// A kind of namespaces that sandboxes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceKind {
    /// User and group ids.
    User,
    /// A list of mounts of its own.
    Mount,
    /// A numbering of processes of its own.
    Pid,
    /// Message queues and shared memory.
    Ipc,
    /// A host name of its own.
    Uts,
    /// Interfaces, addresses and packet filters.
    Network,
    /// The view of control groups.
    Cgroup,
}

impl NamespaceKind {
    /// All kinds that a sandbox uses.
    pub const ALL: [Self; 7] =
        [Self::User, Self::Mount, Self::Pid, Self::Ipc, Self::Uts, Self::Network, Self::Cgroup];

    /// The kind's name in the documentation of Linux.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Mount => "mount",
            Self::Pid => "pid",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Network => "network",
            Self::Cgroup => "cgroup",
        }
    }

    /// The kernel's configuration option.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::User => "CONFIG_USER_NS",
            Self::Mount => "CONFIG_NAMESPACES",
            Self::Pid => "CONFIG_PID_NS",
            Self::Ipc => "CONFIG_IPC_NS",
            Self::Uts => "CONFIG_UTS_NS",
            Self::Network => "CONFIG_NET_NS",
            Self::Cgroup => "CONFIG_CGROUPS",
        }
    }

    fn flag(self) -> u64 {
        let flag = match self {
            Self::User => libc::CLONE_NEWUSER,
            Self::Mount => libc::CLONE_NEWNS,
            Self::Pid => libc::CLONE_NEWPID,
            Self::Ipc => libc::CLONE_NEWIPC,
            Self::Uts => libc::CLONE_NEWUTS,
            Self::Network => libc::CLONE_NEWNET,
            Self::Cgroup => libc::CLONE_NEWCGROUP,
        };
        flag as u64
    }
}

/// Creates a namespace of one kind.
///
/// # Errors
/// The kernel's: `EINVAL` for a kind that the kernel does not have, `EPERM` without the privilege,
/// `ENOSPC` at a limit.
pub fn namespace(kind: NamespaceKind) -> Result<(), StepError> {
    in_child(kind.flag(), || Ok(()))
}

/// Creates all namespaces of a sandbox at once, with the id of a sandbox's agent as the launcher
/// does. Needs root.
///
/// # Errors
/// The failed step.
pub fn sandbox_namespaces() -> Result<(), StepError> {
    in_child(0, || {
        ucounts::prepare().map_err(at_step("limits of sandboxes"))?;
        let fork = || fork_in_namespaces(SANDBOX_NAMESPACES, None, || 0);
        let forked = ucounts::as_user(UID_BASE + AGENT_UID, fork);
        let child = forked
            .map_err(at_step("switch to the agent's id"))?
            .map_err(|error| StepError::from_io("namespaces", &error, Errno::IO))?;
        wait(&child).map(drop)
    })
}
