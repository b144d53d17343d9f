//! The child's side of creating a sandbox: from an empty tree in new namespaces to the agent.
//!
//! [`STEPS`] lists what it does, in order. No step has to be undone: everything that is created
//! here ends with the namespaces of the process.

use super::layers::{receive_layers, root_layers};
use super::new_root::{self, NEW_ROOT, attach_below, attach_file_below};
use crate::child::step_error::report;
use crate::child::{
    AgentFds, SANDBOX_TERMINALS, StepError, become_root, drop_capabilities, exec_agent,
    install_agent_filter, mask_proc, new_devpts, set_process_limits,
};
use crate::config::TENANT_UIDS;
use crate::host::Host;
use crate::kernel::mount::{
    NOSUID_NODEV, NOSUID_NODEV_NOEXEC, attach, attributes, clone_tree, new_filesystem,
};
use isolet_sys::namespaces::{pin_userns, unshare};
use isolet_wire::launcher::Spec;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::DumpableBehavior;
use rustix::thread::UnshareFlags;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Everything that the child needs, prepared by the launcher.
pub(super) struct SandboxParts {
    /// The file system or directory that holds the sandbox's files, under the ids of its slot.
    pub(super) files: OwnedFd,
    /// Files that the server writes for the sandbox to read, mounted at `/etc/isolet`.
    pub(super) given: OwnedFd,
    pub(super) dev: OwnedFd,
    pub(super) sys: OwnedFd,
    /// The kernel's list of the processors in the tenant's CPU set, if it has one.
    pub(super) processors: Option<OwnedFd>,
    /// The sandbox's own `/proc/meminfo`, unless it could not be written.
    pub(super) meminfo: Option<OwnedFd>,
    pub(super) listener: OwnedFd,
    pub(super) oom_events: Option<OwnedFd>,
    pub(super) tenant_cgroup: OwnedFd,
    pub(super) tenant_tasks: Vec<OwnedFd>,
    pub(super) launcher_socket: OwnedFd,
}

/// The state that the steps share.
struct SandboxSetup<'a> {
    host: &'a Host,
    spec: &'a Spec,
    parts: &'a SandboxParts,
    /// The layers of the root, the top one first, and then those of `/usr`.
    layers: Vec<OwnedFd>,
    /// The tenant's user namespace.
    userns: Option<OwnedFd>,
}

type SetupStep = fn(&mut SandboxSetup<'_>) -> Result<(), Errno>;

/// Every step, in order.
const STEPS: &[(&str, SetupStep)] = &[
    ("trees from the launcher", receive),
    ("become root inside", |_| become_root()),
    ("host name", set_hostname),
    ("own files", attach_files),
    ("free reserved blocks", free_spare),
    ("root file system", mount_root),
    ("programs", mount_usr),
    ("reserve blocks", take_spare),
    ("workspace", mount_workspace),
    ("/etc/isolet", mount_given),
    ("start directory", create_start_directory),
    ("proc", mount_proc),
    ("devices", mount_devices),
    ("sys", mount_sys),
    ("unmount the parts", unmount_parts),
    ("enter", enter_root),
    ("loopback", bring_loopback_up),
    ("kernel settings", write_settings),
    ("mask proc", |_| mask_proc()),
    ("process limits", |_| set_process_limits()),
    ("cgroup namespace", create_cgroup_namespace),
    ("tenant's user namespace", create_tenant_userns),
    ("drop capabilities", |_| drop_capabilities()),
    ("filter", |child| install_agent_filter(child.host)),
];

/// Runs the steps and becomes the agent. Returns, with an exit code, only after a failed step was
/// reported.
pub(super) fn run(host: &Host, spec: &Spec, parts: &SandboxParts) -> i32 {
    report(&parts.launcher_socket, &become_agent(host, spec, parts))
}

fn become_agent(host: &Host, spec: &Spec, parts: &SandboxParts) -> StepError {
    isolet_sys::exec::reset_signals();
    let mut child = SandboxSetup { host, spec, parts, layers: Vec::new(), userns: None };
    for (name, step) in STEPS {
        if let Err(errno) = step(&mut child) {
            return StepError::new(*name, errno);
        }
    }
    let Some(userns) = &child.userns else {
        return StepError::new("tenant's user namespace", Errno::BADF);
    };
    let (uid, gid) = spec.root.as_ref().map_or((0, 0), |root| (root.uid, root.gid));
    let inherited = AgentFds {
        listener: &parts.listener,
        userns,
        tenant_cgroup: &parts.tenant_cgroup,
        tenant_tasks: &parts.tenant_tasks,
        oom_events: parts.oom_events.as_ref(),
        uid,
        gid,
        launcher_socket: &parts.launcher_socket,
    };
    StepError::new("execute the agent", exec_agent(host, &inherited))
}

/// Hides the paths of the host's control groups. Not where namespaces are boundaries of delegation:
/// the root of this namespace is the agent's group, and the kernel would refuse (`ENOENT`) to create
/// a process of the tenant in the group beside it. Programs inside then see the names of the server's
/// group and of their own.
fn create_cgroup_namespace(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    if child.host.cgroup_root.ns_delegate {
        return Ok(());
    }
    unshare(UnshareFlags::NEWCGROUP)
}

fn receive(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    child.layers = receive_layers(&child.parts.launcher_socket)?;
    Ok(())
}

fn set_hostname(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    rustix::system::sethostname(child.spec.hostname.as_bytes())
}

/// Creates an overlay with the sandbox's directories of `part` over `lower`: paths separated by
/// colons.
fn new_overlay(lower: &str, part: &str) -> Result<OwnedFd, Errno> {
    let upper = format!("/own/{part}/upper");
    let work = format!("/own/{part}/work");
    let options = [
        ("source", "overlay"),
        ("lowerdir", lower),
        ("upperdir", upper.as_str()),
        ("workdir", work.as_str()),
        ("userxattr", ""),
    ];
    new_filesystem("overlay", &options, NOSUID_NODEV)
}

fn attach_files(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    attach(child.parts.files.as_fd(), Path::new("/own"))
}

/// Files that reserve a little of a limited disk, and free it while overlays are mounted, which
/// create files of their own: a sandbox whose disk is full could not wake otherwise. They are
/// created again before any process of the tenant runs.
const SPARE: [&str; 8] = [
    "/own/spare/0",
    "/own/spare/1",
    "/own/spare/2",
    "/own/spare/3",
    "/own/spare/4",
    "/own/spare/5",
    "/own/spare/6",
    "/own/spare/7",
];
/// The size of each of them: two blocks.
const SPARE_BYTES: usize = 8192;

fn free_spare(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    for path in SPARE.iter().filter(|_| child.spec.limits.disk_mib > 0) {
        match rustix::fs::unlink(*path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn take_spare(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    for path in SPARE.iter().filter(|_| child.spec.limits.disk_mib > 0) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let written = rustix::fs::open(*path, flags, Mode::from_raw_mode(0o600))
            .and_then(|file| rustix::io::write(file, &[1; SPARE_BYTES]));
        match written {
            // Reserves as much as is free.
            Ok(_) | Err(Errno::NOSPC) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn mount_root(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    let root = root_layers(child.spec);
    attach(layers_overlay(child, 0..root, "root")?.as_fd(), Path::new("/new"))
}

fn mount_usr(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    if child.spec.root.as_ref().is_some_and(|root| !root.is_on_host()) {
        return Ok(());
    }
    let usr = root_layers(child.spec)..child.layers.len();
    attach_below(&layers_overlay(child, usr, "usr")?, "usr")
}

/// Creates an overlay over some of the layers, each of which is attached under its number.
fn layers_overlay(
    child: &SandboxSetup<'_>,
    numbers: Range<usize>,
    part: &str,
) -> Result<OwnedFd, Errno> {
    let trees = child.layers.get(numbers.clone()).filter(|trees| !trees.is_empty());
    let trees = trees.ok_or(Errno::BADF)?;
    let mut lower = Vec::with_capacity(trees.len());
    for (number, tree) in numbers.zip(trees) {
        attach(tree.as_fd(), Path::new(&place(number)))?;
        lower.push(place(number));
    }
    new_overlay(&lower.join(":"), part)
}

/// Where a layer is attached while overlays are mounted.
fn place(number: usize) -> String {
    format!("/{number}")
}

fn create_start_directory(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    match &child.spec.root {
        Some(root) if !child.spec.directory_exists => new_root::create_start_directory(root),
        _ => Ok(()),
    }
}

fn mount_workspace(_: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    let tree = clone_tree(CWD, Path::new("/own/workspace"), false)?;
    attributes::set_attributes(tree.as_fd(), attributes::NOSUID | attributes::NODEV, false)?;
    attach_below(&tree, "workspace")
}

/// Read-only; only the server changes it. A root without the mount point does not get it.
fn mount_given(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    match attach_below(&child.parts.given, "etc/isolet") {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        done => done,
    }
}

fn mount_proc(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    let mounted = new_filesystem("proc", &[], NOSUID_NODEV_NOEXEC)?;
    attach_below(&mounted, "proc")?;
    match &child.parts.meminfo {
        Some(file) => attach_file_below(file, "proc/meminfo"),
        None => Ok(()),
    }
}

fn mount_devices(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    attach_below(&child.parts.dev, "dev")?;
    attach_below(&new_devpts(SANDBOX_TERMINALS)?, "dev/pts")?;
    let size = format!("{}m", (child.spec.limits.memory_mib / 2).max(1));
    let options = [("mode", "1777"), ("size", &size), ("uid", "1"), ("gid", "1")];
    let shared = new_filesystem("tmpfs", &options, NOSUID_NODEV)?;
    attach_below(&shared, "dev/shm")
}

fn mount_sys(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    attach_below(&child.parts.sys, "sys")?;
    // The C library counts processors here. The file is the kernel's, so it follows every change of
    // the set.
    match &child.parts.processors {
        Some(list) => attach_file_below(list, "sys/devices/system/cpu/online"),
        None => Ok(()),
    }
}

fn unmount_parts(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    rustix::mount::unmount("/own", UnmountFlags::DETACH)?;
    let count = std::mem::take(&mut child.layers).len();
    (0..count).try_for_each(|number| rustix::mount::unmount(place(number), UnmountFlags::DETACH))
}

/// Covers the empty root with the new one. The root below is an empty read-only tree, so it need
/// not be unmounted, and `pivot_root` with its walk over every process of the host is not needed.
fn enter_root(_: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    rustix::process::chdir(NEW_ROOT)?;
    rustix::mount::mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")
}

/// A network namespace with a veth pair was prepared with loopback up.
fn bring_loopback_up(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    if child.spec.has_veth { Ok(()) } else { isolet_sys::loopback::bring_up() }
}

fn write(path: &str, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes()).map(drop)
}

fn write_settings(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    if !child.spec.has_veth {
        write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")?;
        write("/proc/sys/net/ipv4/ping_group_range", "0 65535")?;
    }
    // The only one is the tenant's namespace; no process inside can create another.
    write("/proc/sys/user/max_user_namespaces", "1")
}

/// Creates a user namespace below this one that maps every id except the agent's.
fn create_tenant_userns(child: &mut SandboxSetup<'_>) -> Result<(), Errno> {
    // After the change of user, the host's root owns the files in `/proc` of this process.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let pinned =
        pin_userns().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    let map = format!("0 1 {TENANT_UIDS}");
    write(&format!("/proc/{}/uid_map", pinned.pid), &map)?;
    write(&format!("/proc/{}/gid_map", pinned.pid), &map)?;
    let path = format!("/proc/{}/ns/user", pinned.pid);
    child.userns = Some(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
