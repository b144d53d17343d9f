//! The child's side of a session's scope: from the sandbox's mounts to those that the session may
//! see, in namespaces of its own, and then to its agent.
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

use super::grants::{GrantedTree, copy_grants};
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
use isolet_wire::launcher::Scope;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The tenant's root, under the sandbox's ids.
const ROOT: u32 = 1;
/// The tenant's user 1000, likewise.
const USER: u32 = 1001;

/// A directory that every session has for itself beside its grants.
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

/// What the steps share.
struct Child<'a> {
    host: &'a Host,
    request: &'a Scope,
    /// In the order of the grants; `None` for one that is absent.
    granted: Vec<Option<GrantedTree>>,
}

type Step = fn(&mut Child<'_>) -> Result<(), Errno>;

/// Every step after the grants were copied, in order.
const STEPS: &[(&str, Step)] = &[
    ("cover", cover_workspace),
    ("devices", |_| mount_devices()),
    ("own directories", mount_own_directories),
    ("read-only root", |_| make_root_read_only()),
    ("proc", |_| replace_proc()),
    ("mask proc", |_| mask_proc()),
    ("process limits", |_| set_process_limits()),
    ("enter", |_| rustix::process::chdir("/")),
    ("drop capabilities", |_| drop_capabilities()),
    ("filter", |child| install_agent_filter(child.host)),
];

/// Runs the steps and becomes the agent. Returns, with an exit code, only after a failed step was
/// reported.
pub(super) fn run(host: &Host, request: &Scope, inherited: &AgentFds<'_>) -> i32 {
    let Err(error) = run_steps(host, request) else {
        let error = StepError::new("execute the agent", exec_agent(host, inherited));
        return report(inherited.launcher_socket, &error);
    };
    report(inherited.launcher_socket, &error)
}

fn run_steps(host: &Host, request: &Scope) -> Result<(), StepError> {
    isolet_sys::exec::reset_signals();
    become_root().map_err(|errno| StepError::new("become root inside", errno))?;
    let mut child = Child { host, request, granted: copy_grants(request)? };
    for (name, step) in STEPS {
        step(&mut child).map_err(|errno| StepError::new(*name, errno))?;
    }
    Ok(())
}

/// Whether a grant lies within another one that is present.
fn is_nested(path: &str, present: &BTreeSet<&str>) -> bool {
    let mut at = path;
    while let Some((above, _)) = at.rsplit_once('/') {
        if present.contains(above) {
            return true;
        }
        at = above;
    }
    !path.is_empty() && present.contains("")
}

/// Replaces the workspace by an empty read-only tree, with the grants attached to it.
fn cover_workspace(child: &mut Child<'_>) -> Result<(), Errno> {
    let paths = child.request.grants.iter().map(|grant| grant.path.as_str());
    let mut grants: Vec<(&str, GrantedTree)> = paths
        .zip(std::mem::take(&mut child.granted))
        .filter_map(|(path, granted)| Some((path, granted?)))
        .collect();
    let present: BTreeSet<&str> = grants.iter().map(|(path, _)| *path).collect();
    let base = if present.contains("") {
        grants.remove(0).1.tree
    } else {
        mount_points(grants.iter().filter(|(path, _)| !is_nested(path, &present)))?
    };
    rustix::mount::unmount("/workspace", UnmountFlags::DETACH)?;
    attach(base.as_fd(), Path::new("/workspace"))?;
    for (path, granted) in &grants {
        let target = open_beneath(base.as_fd(), path, OFlags::empty())?;
        attach_at(granted.tree.as_fd(), target.as_fd())?;
    }
    Ok(())
}

/// A read-only tree of directories and empty files for the grants to be attached to.
fn mount_points<'a>(
    grants: impl Iterator<Item = &'a (&'a str, GrantedTree)>,
) -> Result<OwnedFd, Errno> {
    let root = ROOT.to_string();
    let options =
        [("mode", "0755"), ("size", "64k"), ("uid", root.as_str()), ("gid", root.as_str())];
    let tree = new_filesystem("tmpfs", &options, MountAttrFlags::empty())?;
    let mut created = BTreeSet::new();
    for (path, granted) in grants {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let part = &path[..end];
            if !created.insert(part) {
                continue;
            }
            if end == path.len() && !granted.is_directory {
                let mode = Mode::from_raw_mode(0o644);
                rustix::fs::mknodat(&tree, part, FileType::RegularFile, mode, 0)?;
            } else {
                rustix::fs::mkdirat(&tree, part, Mode::from_raw_mode(0o755))?;
            }
            chown(open_beneath(tree.as_fd(), part, OFlags::empty())?.as_fd(), ROOT, ROOT)?;
        }
    }
    let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
    attributes::set_attributes(tree.as_fd(), flags, false)?;
    Ok(tree)
}

/// One file system in memory with a directory for each of [`OWN_DIRECTORIES`].
fn mount_own_directories(child: &mut Child<'_>) -> Result<(), Errno> {
    let size = format!("{}m", (child.request.memory_mib / 2).max(1));
    let memory = new_filesystem("tmpfs", &[("mode", "0755"), ("size", &size)], NOSUID_NODEV)?;
    for own in OWN_DIRECTORIES {
        rustix::fs::mkdirat(&memory, own.name, Mode::from_raw_mode(own.mode))?;
        let directory = open_beneath(memory.as_fd(), own.name, OFlags::DIRECTORY)?;
        chown(directory.as_fd(), ROOT, ROOT)?;
    }
    rustix::fs::mkdirat(&memory, "home/user", Mode::from_raw_mode(0o755))?;
    let home = open_beneath(memory.as_fd(), "home/user", OFlags::DIRECTORY)?;
    chown(home.as_fd(), USER, USER)?;
    // Attached first, and covered by a part of itself: only parts of attached mounts can be copied.
    attach(memory.as_fd(), Path::new("/dev/shm"))?;
    let mut parts = Vec::with_capacity(OWN_DIRECTORIES.len());
    for own in OWN_DIRECTORIES {
        parts.push(clone_tree(memory.as_fd(), Path::new(own.name), false)?);
    }
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for (part, own) in parts.iter().zip(OWN_DIRECTORIES) {
        // Not through a link that another session of the sandbox has put there.
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

/// Mounts a `/proc` that shows this process namespace alone. The other one is unmounted after that:
/// the kernel lets nobody mount `/proc` who sees none.
fn replace_proc() -> Result<(), Errno> {
    let proc = new_filesystem("proc", &[], NOSUID_NODEV_NOEXEC)?;
    rustix::mount::unmount("/proc", UnmountFlags::DETACH)?;
    attach(proc.as_fd(), Path::new("/proc"))
}

/// Mounts the same devices with terminals of its own. The sandbox's terminals and its shared memory
/// are unmounted with the old `/dev`.
fn mount_devices() -> Result<(), Errno> {
    let devices = clone_tree(CWD, Path::new("/dev"), false)?;
    rustix::mount::unmount("/dev", UnmountFlags::DETACH)?;
    attach(devices.as_fd(), Path::new("/dev"))?;
    attach(new_devpts(SCOPE_TERMINALS)?.as_fd(), Path::new("/dev/pts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_nested_where_one_above_it_is_there() {
        let there = BTreeSet::from(["a", "b/c"]);
        assert!(is_nested("a/x", &there) && is_nested("b/c/d/e", &there));
        assert!(!is_nested("a", &there) && !is_nested("ab/x", &there) && !is_nested("b/d", &there));
        assert!(is_nested("z", &BTreeSet::from([""])) && !is_nested("", &BTreeSet::from([""])));
    }
}
