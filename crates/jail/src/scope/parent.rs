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

use super::child;
use super::grants::check_grants;
use crate::cgroup::Cgroups;
use crate::child::agent_socket;
use crate::child::step_error::{report, socket_pair, wait_until_started};
use crate::child::{AgentFds, StepError, at_step};
use crate::config::{SCOPES, UIDS, scope_dir};
use crate::host::Host;
use isolet_sys::namespaces::{SCOPE_NAMESPACES, fork_in_namespaces};
use isolet_wire::launcher::Scope;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The agent's number of the tenant's user namespace (`--userns`).
const AGENT_USERNS_FD: i32 = 4;
/// Attempts to remove the group of a scope that did not start, and the pause between two.
const REMOVE_ATTEMPTS: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(1);

/// Starts the agent of a session's scope in a running sandbox; calls `granted` once every grant was
/// checked.
///
/// # Errors
/// The failed step; `grant N` is the one of that index. Nothing of the scope is left then.
pub fn start_scope(host: &Host, request: &Scope, granted: impl FnOnce()) -> Result<(), StepError> {
    let sandbox_dir = host.config.sandbox_dir(&request.name);
    let cgroups = std::fs::read_to_string(sandbox_dir.join("cgroups"));
    let cgroups = cgroups.ok().and_then(|text| Cgroups::from_text(&text));
    let cgroups = cgroups.ok_or_else(|| StepError::new("groups of the sandbox", Errno::NOENT))?;
    let sandbox = SandboxAgent::open(&cgroups).map_err(at_step("agent of the sandbox"))?;
    let root_id = host.config.uid_base + request.slot * UIDS;
    check_grants(request, sandbox.workspace.as_fd(), root_id)?;
    granted();
    let directory = create_directory(&sandbox_dir, &request.session)
        .map_err(at_step("directory of the scope"))?;
    let group = GroupGuard::create(cgroups.scope(&request.session))
        .map_err(at_step("group of the scope"))?;
    start(host, request, &sandbox, &ScopeFds::open(&cgroups, &directory, &group.path)?)?;
    group.keep();
    Ok(())
}

/// The agent of the sandbox, with what of it a scope's agent needs.
struct SandboxAgent {
    pidfd: OwnedFd,
    userns: OwnedFd,
    workspace: OwnedFd,
}

impl SandboxAgent {
    /// Opens the one process of the agent's group. By descriptor: its id may be reused at any time.
    fn open(cgroups: &Cgroups) -> Result<Self, Errno> {
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
        // It is still listed after all were opened, so all are its own.
        let unchanged = listed() == Some(pid);
        unchanged.then_some(Self { pidfd, userns, workspace }).ok_or(Errno::SRCH)
    }
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
    // Left by an agent that has ended.
    match rustix::fs::unlinkat(&directory, "agent.sock", AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(directory),
        Err(errno) => Err(errno),
    }
}

/// The group of a scope's agent. Dropping it kills what is in the group and removes it, unless
/// [`GroupGuard::keep`] was called.
struct GroupGuard {
    path: PathBuf,
    remove_on_drop: bool,
}

impl GroupGuard {
    /// The group of an agent that has ended may exist; it is used if it is empty.
    fn create(path: PathBuf) -> Result<Self, Errno> {
        match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let events = std::fs::read_to_string(path.join("cgroup.events"));
                if events.is_ok_and(|text| text.contains("populated 1")) {
                    return Err(Errno::BUSY);
                }
            }
            Err(errno) => return Err(errno),
        }
        Ok(Self { path, remove_on_drop: true })
    }

    fn keep(mut self) {
        self.remove_on_drop = false;
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if !self.remove_on_drop {
            return;
        }
        let _ = std::fs::write(self.path.join("cgroup.kill"), "1");
        for _ in 0..REMOVE_ATTEMPTS {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
}

/// What is opened in the launcher for the scope's agent.
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

fn start(
    host: &Host,
    request: &Scope,
    sandbox: &SandboxAgent,
    fds: &ScopeFds,
) -> Result<(), StepError> {
    let sockets = socket_pair()?;
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
        run_first(host, request, sandbox, &inherited)
    })
    .map_err(|error| StepError::from_io("first child", &error, Errno::IO))?;
    drop(sockets.child);
    wait_until_started(sockets.launcher)
}

/// The first child: leaves the host's namespaces for good.
fn run_first(
    host: &Host,
    request: &Scope,
    sandbox: &SandboxAgent,
    inherited: &AgentFds<'_>,
) -> i32 {
    let all = ThreadNameSpaceType::USER
        | ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::CONTROL_GROUP;
    if let Err(errno) = move_into_thread_name_spaces(sandbox.pidfd.as_fd(), all) {
        let error = StepError::new("namespaces of the sandbox", errno);
        return report(inherited.launcher_socket, &error);
    }
    // Its children are created in the sandbox's process namespace; it is not in there itself.
    let run_second = || {
        let third =
            fork_in_namespaces(SCOPE_NAMESPACES, None, || child::run(host, request, inherited));
        exit_code(inherited, "namespaces of the scope", third.map(drop))
    };
    let second = fork_in_namespaces(0, None, run_second).map(|child| {
        // A child that is left without its parent would be a zombie in the sandbox until the host's
        // first process reaped it.
        let mut ended = [PollFd::new(&child.pidfd, PollFlags::IN)];
        while poll(&mut ended, None) == Err(Errno::INTR) {}
    });
    exit_code(inherited, "second child", second)
}

fn exit_code(inherited: &AgentFds<'_>, step: &str, forked: std::io::Result<()>) -> i32 {
    match forked {
        Ok(()) => 0,
        Err(error) => {
            report(inherited.launcher_socket, &StepError::from_io(step, &error, Errno::IO))
        }
    }
}
