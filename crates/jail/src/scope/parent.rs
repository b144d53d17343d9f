//! The launcher's side of a session's scope: a socket and a control group, then three children in a
//! row. The first enters the sandbox's namespaces. The second is created in the sandbox's process
//! namespace, since only from there another can be created below it. The third is process 1 of the
//! session's own (`child.rs`).
//!
//! The launcher opens the sandbox's agent by its control group, as a descriptor of the process, and
//! checks it again after everything was opened. It resolves every grant below that process's
//! `/workspace` with `openat2` (beneath, without links), creates what may be written, and reports
//! `Granted`; the session is recorded from then on, while its agent starts.
//!
//! The first child is a process of the host's process namespace until it ends, so nobody inside can
//! name it. When the second child ends, the third becomes a child of the sandbox's agent, and
//! therefore ends with the sandbox.

use super::agent_group::AgentGroup;
use super::child::ScopeMemory;
use super::enter::run_first;
use super::grants::{OpenedGrant, open_grants};
use super::sandbox_agent::SandboxAgent;
use super::scope_error::ScopeError;
use crate::cgroup::Cgroups;
use crate::cgroup::meminfo;
use crate::child::step_error::{socket_pair, wait_until_started};
use crate::child::{AgentFds, StepError, agent_socket, at_step};
use crate::config::{SCOPES, scope_dir};
use crate::host::Host;
use isolet_sys::namespaces::fork_in_namespaces;
use isolet_wire::launcher::Scope;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Starts the agent of a session's scope in a running sandbox. Calls `granted` once every grant was
/// opened, before the first process starts.
///
/// # Errors
/// The grant that was refused, or the step that failed. Nothing of the scope is left then.
pub fn start_scope(host: &Host, request: &Scope, granted: impl FnOnce()) -> Result<(), ScopeError> {
    let sandbox_dir = host.config.sandbox_dir(&request.name);
    let cgroups = std::fs::read_to_string(sandbox_dir.join("cgroups"));
    let cgroups = cgroups.ok().and_then(|text| Cgroups::from_text(&text));
    let cgroups = cgroups.ok_or_else(|| StepError::new("groups of the sandbox", Errno::NOENT))?;
    let sandbox = SandboxAgent::open(&cgroups).map_err(at_step("agent of the sandbox"))?;
    let root_id = host.config.first_id(request.slot).map_err(at_step("user ids"))?;
    let grants = open_grants(request, sandbox.workspace.as_fd(), root_id)?;
    granted();
    let directory = create_directory(&sandbox_dir, &request.session)
        .map_err(at_step("directory of the scope"))?;
    let group = AgentGroup::create(cgroups.scope(&request.session))
        .map_err(at_step("group of the scope"))?;
    let fds = ScopeFds::open(&cgroups, &directory, &group.path)?;
    start(host, request, &sandbox, &fds, grants)?;
    group.keep();
    Ok(())
}

fn create_directory(sandbox_dir: &Path, session: &str) -> Result<OwnedFd, Errno> {
    let scope_dir = scope_dir(sandbox_dir, session);
    for path in [&sandbox_dir.join(SCOPES), &scope_dir] {
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o711)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(&scope_dir, flags, Mode::empty())?;
    // An agent that has ended leaves its socket behind.
    match rustix::fs::unlinkat(&directory, "agent.sock", AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(directory),
        Err(errno) => Err(errno),
    }
}

/// Descriptors that the launcher opens for the scope's agent.
struct ScopeFds {
    listener: OwnedFd,
    tenant_cgroup: OwnedFd,
    tenant_tasks: Vec<OwnedFd>,
    oom_events: Option<OwnedFd>,
    /// The group that the first child is created in.
    agent_cgroup: OwnedFd,
}

impl ScopeFds {
    fn open(cgroups: &Cgroups, directory: &OwnedFd, group: &Path) -> Result<Self, StepError> {
        let open = |path: &Path, flags: OFlags| {
            rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
        };
        let listener = agent_socket::listen(directory.as_fd()).map_err(at_step("socket"))?;
        let tenant_cgroup = open(&cgroups.tenant(), OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(at_step("tenant's group"))?;
        let tenant_tasks = cgroups.open_tasks().map_err(at_step("task files"))?;
        let oom_events = open(&cgroups.oom_events(), OFlags::RDONLY).ok();
        let agent_cgroup = open(group, OFlags::RDONLY).map_err(at_step("group of the scope"))?;
        Ok(Self { listener, tenant_cgroup, tenant_tasks, oom_events, agent_cgroup })
    }
}

/// Forks the first child and waits until the agent runs.
fn start(
    host: &Host,
    request: &Scope,
    sandbox: &SandboxAgent,
    fds: &ScopeFds,
    grants: Vec<OpenedGrant>,
) -> Result<(), StepError> {
    let sockets = socket_pair()?;
    // A sandbox whose file could not be written has none.
    let meminfo = meminfo::mount(&host.config.sandbox_dir(&request.name)).ok();
    let memory = ScopeMemory { limit_mib: request.memory_mib, meminfo };
    let inherited = AgentFds {
        listener: &fds.listener,
        userns: &sandbox.userns,
        tenant_cgroup: &fds.tenant_cgroup,
        tenant_tasks: &fds.tenant_tasks,
        oom_events: fds.oom_events.as_ref(),
        uid: request.user.0,
        gid: request.user.1,
        launcher_socket: &sockets.child,
    };
    fork_in_namespaces(0, Some(fds.agent_cgroup.as_fd()), || {
        run_first(host, memory, sandbox, &inherited, grants)
    })
    .map_err(|error| StepError::from_io("first child", &error, Errno::IO))?;
    drop(sockets.child);
    wait_until_started(sockets.launcher)
}
