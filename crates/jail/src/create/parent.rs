//! The launcher's side of creating a sandbox: directory, socket, control groups and mounts, then a
//! child in new namespaces that does the rest. When a step fails, the launcher removes everything
//! again.

use super::child::{self, SandboxParts};
use super::directory::Directory;
use super::layers::send_layers;
use crate::cgroup::Cgroups;
use crate::cgroup::meminfo;
use crate::child::step_error::{socket_pair, wait_until_started};
use crate::child::{StepError, agent_socket, at_step};
use crate::config::{AGENT_UID, GIVEN};
use crate::host::{Host, ucounts};
use crate::kernel::mount::{attributes, clone_tree, enter};
use crate::kernel::netns;
use crate::orphan;
use isolet_sys::namespaces::{NETWORK_NAMESPACE, SANDBOX_NAMESPACES, fork_in_namespaces};
use isolet_wire::launcher::Spec;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Attempts to remove the groups after a failed creation, and the pause between two attempts.
const REMOVE_ATTEMPTS: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// Creates a sandbox and starts its agent; returns the agent's process id. The sandbox is created
/// in the network namespace `network`, or in a new one that has only loopback.
///
/// # Errors
/// The failed step; nothing of the sandbox is left.
pub fn create_sandbox(
    host: &Host,
    spec: &Spec,
    network: Option<OwnedFd>,
) -> Result<i32, StepError> {
    if spec.has_veth != network.is_some() {
        return Err(StepError::new("network namespace of the veth pair", Errno::BADF));
    }
    let mut directory = Directory::create(host, spec)?;
    let cgroups = host
        .cgroup_root
        .create_sandbox(&spec.name, &spec.limits)
        .map_err(|error| StepError::from_io("groups", &error, Errno::IO))?;
    let guard = CgroupGuard { cgroups: &cgroups, remove_on_drop: true };
    let parts = prepare(host, spec, &cgroups, &mut directory)?;
    let pid = start(host, spec, parts, network)?;
    orphan::record(directory.fd(), pid).map_err(at_step("record of the agent"))?;
    guard.keep();
    directory.keep();
    Ok(pid)
}

/// Creates the directory of a sandbox with its disk and its empty directories, and starts nothing.
///
/// # Errors
/// The failed step; nothing of the sandbox is left.
pub fn create_files(host: &Host, spec: &Spec) -> Result<(), StepError> {
    Directory::create(host, spec)?.keep();
    Ok(())
}

/// A sandbox's control groups. Dropping it kills the processes in the groups and removes the
/// groups, unless [`CgroupGuard::keep`] was called.
struct CgroupGuard<'a> {
    cgroups: &'a Cgroups,
    remove_on_drop: bool,
}

impl CgroupGuard<'_> {
    fn keep(mut self) {
        self.remove_on_drop = false;
    }
}

impl Drop for CgroupGuard<'_> {
    fn drop(&mut self) {
        if !self.remove_on_drop {
            return;
        }
        let _ = std::fs::write(self.cgroups.unified.join("cgroup.kill"), "1");
        for _ in 0..REMOVE_ATTEMPTS {
            self.cgroups.try_remove();
            if !self.cgroups.exist() {
                return;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
}

/// Everything that the child needs, with the launcher's end of its connection.
struct PreparedChild {
    parts: SandboxParts,
    /// The group that the child is created in.
    agent_cgroup: OwnedFd,
    child_socket: OwnedFd,
}

fn prepare(
    host: &Host,
    spec: &Spec,
    cgroups: &Cgroups,
    directory: &mut Directory<'_>,
) -> Result<PreparedChild, StepError> {
    directory.write("cgroups", &cgroups.to_text()).map_err(at_step("record of groups"))?;
    let listener = agent_socket::listen(directory.fd()).map_err(at_step("socket"))?;
    let agent_id = agent_id(host, spec)?;
    let tenant_cgroup = delegate(cgroups, agent_id).map_err(at_step("delegate groups"))?;
    let tenant_tasks = cgroups.open_tasks().map_err(at_step("task files"))?;
    let files = directory.take_files()?;
    let trees = Trees::create(host, cgroups, directory).map_err(at_step("trees"))?;
    // Without it, programs see the memory of the machine. The limit holds as before.
    let meminfo = meminfo::create(&host.config.sandbox_dir(&spec.name), cgroups).ok();
    let read_only = OFlags::RDONLY | OFlags::CLOEXEC;
    let oom_events = rustix::fs::open(cgroups.oom_events(), read_only, Mode::empty()).ok();
    let sockets = socket_pair()?;
    let agent_cgroup = rustix::fs::open(cgroups.agent(), read_only, Mode::empty())
        .map_err(at_step("agent's group"))?;
    let parts = SandboxParts {
        files,
        given: trees.given,
        dev: trees.dev,
        sys: trees.sys,
        processors: trees.processors,
        meminfo,
        listener,
        oom_events,
        tenant_cgroup,
        tenant_tasks,
        launcher_socket: sockets.child,
    };
    Ok(PreparedChild { parts, agent_cgroup, child_socket: sockets.launcher })
}

fn agent_id(host: &Host, spec: &Spec) -> Result<u32, StepError> {
    let first_id = host.config.first_id(spec.slot).map_err(at_step("user ids"))?;
    Ok(first_id + AGENT_UID)
}

struct Trees {
    given: OwnedFd,
    dev: OwnedFd,
    sys: OwnedFd,
    processors: Option<OwnedFd>,
}

impl Trees {
    fn create(host: &Host, cgroups: &Cgroups, directory: &Directory<'_>) -> Result<Self, Errno> {
        let whole = Path::new("");
        let given = clone_tree(directory.fd(), Path::new(GIVEN), false)?;
        let flags =
            attributes::RDONLY | attributes::NOSUID | attributes::NODEV | attributes::NOEXEC;
        attributes::set_attributes(given.as_fd(), flags, false)?;
        let dev = clone_tree(host.dev.as_fd(), whole, true)?;
        let sys = clone_tree(host.sys.as_fd(), whole, true)?;
        let processors = cgroups.cpuset().map(|set| -> Result<_, Errno> {
            let list = clone_tree(CWD, set.effective_file(), false)?;
            attributes::set_attributes(list.as_fd(), flags, false)?;
            Ok(list)
        });
        Ok(Self { given, dev, sys, processors: processors.transpose()? })
    }
}

/// Lets the agent, and no other process inside, move processes into the tenant's group, and create
/// groups below it: one for each background process.
fn delegate(cgroups: &Cgroups, agent_id: u32) -> Result<OwnedFd, Errno> {
    let uid = Uid::from_raw(agent_id);
    let gid = Gid::from_raw(agent_id);
    let tenant = cgroups.tenant();
    let procs = [cgroups.unified.join("cgroup.procs"), tenant.join("cgroup.procs")];
    for path in procs.iter().chain([&tenant]) {
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::empty())?;
    }
    rustix::fs::open(tenant, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Starts the child and waits until it has become the agent; returns its process id.
fn start(
    host: &Host,
    spec: &Spec,
    prepared: PreparedChild,
    network: Option<OwnedFd>,
) -> Result<i32, StepError> {
    let PreparedChild { parts, agent_cgroup, child_socket } = prepared;
    let agent_id = agent_id(host, spec)?;
    let child = in_netns(host, network.as_ref(), |namespaces| {
        enter(host.empty_mount_ns.as_fd()).map_err(at_step("enter the empty mount namespace"))?;
        let forked = ucounts::as_user(agent_id, || {
            fork_in_namespaces(namespaces, Some(agent_cgroup.as_fd()), || {
                child::run(host, spec, &parts)
            })
        });
        enter(host.own_mount_ns.as_fd()).map_err(at_step("leave the empty mount namespace"))?;
        forked
            .map_err(at_step("switch to the agent's id"))?
            .map_err(|error| StepError::from_io("namespaces", &error, Errno::IO))
    })?;
    drop(network);
    drop(parts);
    send_layers(host, spec, child.pid, &child_socket)?;
    wait_until_started(child_socket)?;
    Ok(child.pid)
}

/// Runs `fork` in the network namespace `network`. The host's root owns it, so no process inside
/// has privileges over it. Without one, the child gets a new namespace.
fn in_netns<R>(
    host: &Host,
    network: Option<&OwnedFd>,
    fork: impl FnOnce(u64) -> Result<R, StepError>,
) -> Result<R, StepError> {
    let Some(network) = network else { return fork(SANDBOX_NAMESPACES) };
    netns::enter(network.as_fd()).map_err(at_step("network namespace of the veth pair"))?;
    let forked = fork(SANDBOX_NAMESPACES & !NETWORK_NAMESPACE);
    // Otherwise later children would be created in there.
    netns::enter(host.own_netns.as_fd()).expect("back into its own network namespace");
    forked
}
