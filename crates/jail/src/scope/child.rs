//! The child's side of a session's scope: replaces the sandbox's mounts by those that the session
//! may see, in its own namespaces, and starts its agent.
//!
//! Granted trees are copied by descriptor before anything is covered, and never looked up by name
//! again, because others work in the same directories. What was not granted is not only covered but
//! unmounted, so that nothing can be uncovered.
//!
//! The workspace is replaced by a read-only tmpfs that contains only the directories that lead to
//! the grants. `/tmp` and its like become a file system in memory, `/` and `/usr` become read-only,
//! and `/proc` and the terminals are mounted again for the new namespaces. From there on the agent
//! is like any other: the same descriptors, the same user namespace of the tenant, the tenant's
//! control groups with their limits. Only its own group lies below that of the sandbox's agent;
//! ending that group ends the scope.

use super::trees::GrantedTree;
use super::workspace::{TENANT_ROOT, mount_grants};
use crate::child::step_error::report;
use crate::child::{
    AgentFds, SCOPE_TERMINALS, StepError, become_root, drop_capabilities, exec_agent,
    install_agent_filter, mask_proc, new_devpts, set_process_limits,
};
use crate::host::Host;
use crate::kernel::mount::{
    NOSUID_NODEV, NOSUID_NODEV_NOEXEC, attach, attach_at, attributes, clone_tree, new_filesystem,
};
use crate::kernel::rooted::{chown, open_beneath};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The tenant's user 1000 as the sandbox's user namespace numbers it.
const USER: u32 = 1001;

/// A directory that every session has to itself beside its grants.
struct OwnDirectory {
    /// Its name in the session's file system.
    name: &'static str,
    mount_point: &'static str,
    mode: u32,
}

const OWN_DIRECTORIES: &[OwnDirectory] = &[
    OwnDirectory { name: "tmp", mount_point: "/tmp", mode: 0o1777 },
    OwnDirectory { name: "vartmp", mount_point: "/var/tmp", mode: 0o1777 },
    OwnDirectory { name: "shm", mount_point: "/dev/shm", mode: 0o1777 },
    OwnDirectory { name: "run", mount_point: "/run", mode: 0o755 },
    OwnDirectory { name: "root", mount_point: "/root", mode: 0o700 },
    OwnDirectory { name: "home", mount_point: "/home", mode: 0o755 },
];

/// The mounts of a scope that are its own.
pub(super) struct ScopeMounts {
    /// In the order of the grants.
    pub(super) granted: Vec<GrantedTree>,
    pub(super) memory: ScopeMemory,
}

/// What a scope shows and uses of its sandbox's memory.
pub(super) struct ScopeMemory {
    /// The limit. Half of it bounds the files that the session holds in memory.
    pub(super) limit_mib: u64,
    /// The sandbox's own `/proc/meminfo`, if it has one.
    pub(super) meminfo: Option<OwnedFd>,
}

type ScopeStep = fn(&Host, &mut ScopeMounts) -> Result<(), Errno>;

/// Every step, in order.
const STEPS: &[(&str, ScopeStep)] = &[
    ("become root inside", |_, _| become_root()),
    ("cover", |_, mounts| mount_grants(std::mem::take(&mut mounts.granted))),
    ("devices", |_, _| mount_devices()),
    ("own directories", |_, mounts| mount_own_directories(mounts.memory.limit_mib)),
    ("read-only root", |_, _| make_root_read_only()),
    ("proc", |_, mounts| replace_proc(mounts.memory.meminfo.as_ref())),
    ("mask proc", |_, _| mask_proc()),
    ("process limits", |_, _| set_process_limits()),
    ("enter", |_, _| rustix::process::chdir("/")),
    ("drop capabilities", |_, _| drop_capabilities()),
    ("filter", |host, _| install_agent_filter(host)),
];

/// Runs the steps and becomes the agent. Returns, with an exit code, only after a failed step was
/// reported.
pub(super) fn run(host: &Host, mut mounts: ScopeMounts, inherited: &AgentFds<'_>) -> i32 {
    isolet_sys::exec::reset_signals();
    for (name, step) in STEPS {
        if let Err(errno) = step(host, &mut mounts) {
            return report(inherited.launcher_socket, &StepError::new(*name, errno));
        }
    }
    let error = StepError::new("execute the agent", exec_agent(host, inherited));
    report(inherited.launcher_socket, &error)
}

/// One file system in memory with a directory for each of [`OWN_DIRECTORIES`].
fn mount_own_directories(limit_mib: u64) -> Result<(), Errno> {
    let size = format!("{}m", (limit_mib / 2).max(1));
    let memory = new_filesystem("tmpfs", &[("mode", "0755"), ("size", &size)], NOSUID_NODEV)?;
    for own in OWN_DIRECTORIES {
        rustix::fs::mkdirat(&memory, own.name, Mode::from_raw_mode(own.mode))?;
        let directory = open_beneath(memory.as_fd(), own.name, OFlags::DIRECTORY)?;
        chown(directory.as_fd(), TENANT_ROOT, TENANT_ROOT)?;
    }
    rustix::fs::mkdirat(&memory, "home/user", Mode::from_raw_mode(0o755))?;
    let home = open_beneath(memory.as_fd(), "home/user", OFlags::DIRECTORY)?;
    chown(home.as_fd(), USER, USER)?;
    // Attached first, and then covered by a part of itself: only parts of attached mounts can be
    // copied.
    attach(memory.as_fd(), Path::new("/dev/shm"))?;
    let mut parts = Vec::with_capacity(OWN_DIRECTORIES.len());
    for own in OWN_DIRECTORIES {
        parts.push(clone_tree(memory.as_fd(), Path::new(own.name), false)?);
    }
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for (part, own) in parts.iter().zip(OWN_DIRECTORIES) {
        // Another session of the sandbox may have put a symbolic link there: it is not followed.
        let path = own.mount_point.trim_start_matches('/');
        let target = open_beneath(root.as_fd(), path, OFlags::DIRECTORY)?;
        attach_at(part.as_fd(), target.as_fd())?;
    }
    Ok(())
}

/// Makes the rest of the sandbox's files read-only.
fn make_root_read_only() -> Result<(), Errno> {
    for path in ["/", "/usr"] {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mount = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let set = mount
            .and_then(|mount| attributes::set_attributes(mount.as_fd(), attributes::RDONLY, false));
        match set {
            // The root of an image is one mount: `/usr` is a directory of it, or does not exist.
            Err(Errno::INVAL | Errno::NOENT) if path == "/usr" => {}
            set => set?,
        }
    }
    Ok(())
}

/// Mounts a `/proc` that shows only this process namespace. The old one is unmounted after that,
/// because the kernel allows mounting `/proc` only where one is visible already.
fn replace_proc(meminfo: Option<&OwnedFd>) -> Result<(), Errno> {
    let proc = new_filesystem("proc", &[], NOSUID_NODEV_NOEXEC)?;
    rustix::mount::unmount("/proc", UnmountFlags::DETACH)?;
    attach(proc.as_fd(), Path::new("/proc"))?;
    meminfo.map_or(Ok(()), |file| attach(file.as_fd(), Path::new("/proc/meminfo")))
}

/// Mounts the same devices with terminals of the session's own. The sandbox's terminals and its
/// shared memory are unmounted with the old `/dev`.
fn mount_devices() -> Result<(), Errno> {
    let devices = clone_tree(CWD, Path::new("/dev"), false)?;
    rustix::mount::unmount("/dev", UnmountFlags::DETACH)?;
    attach(devices.as_fd(), Path::new("/dev"))?;
    attach(new_devpts(SCOPE_TERMINALS)?.as_fd(), Path::new("/dev/pts"))
}
