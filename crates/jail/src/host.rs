//! What the launcher prepares once, so that a sandbox costs little: template trees, an empty
//! mount namespace, filters, and the agent in sealed memory.

use crate::cgroup::{Base, Hierarchies};
use crate::charge;
use crate::config::Config;
use crate::filter::{Whose, bytes, compile};
use crate::image;
use crate::sealed::sealed;
use isolet_sys::mount as attributes;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Everything that is the same for all sandboxes.
#[derive(Debug)]
pub struct Host {
    /// As the server gave it.
    pub config: Config,
    /// Where its sandboxes' groups stand.
    pub groups: Base,
    /// The synthetic part of the image.
    pub skeleton: PathBuf,
    /// `/dev`, read-only, shared by all; attached in the launcher's own mount namespace.
    pub dev: OwnedFd,
    /// `/sys`, likewise: processor topology and nothing else.
    pub sys: OwnedFd,
    /// A mount namespace that holds one empty directory tree.
    pub empty: OwnedFd,
    /// The launcher's own mount namespace.
    pub own: OwnedFd,
    /// The launcher's own network namespace.
    pub network: OwnedFd,
    /// The agent's program, sealed.
    pub agent: OwnedFd,
    /// The agent's filter.
    pub agent_filter: Vec<u64>,
    /// The tenant's filter, sealed, for the agent to read.
    pub tenant_filter: OwnedFd,
}

/// Device nodes of every sandbox: name, major, minor.
const DEVICES: &[(&str, u32, u32)] = &[
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// Directories of the empty tree: where a sandbox's parts are attached while it is made.
const PLACES: &[&str] = &["new", "own", "etc", "usr", "proc"];

/// Layers that a root of an image may have. A place of each lies in the empty tree, by its number.
pub(crate) const LAYERS_MAX: usize = 32;

impl Host {
    /// Prepares everything. The process must have one thread and be root.
    ///
    /// # Errors
    /// As the kernel says, with the step that failed.
    pub fn prepare(config: Config) -> Result<Self, (&'static str, io::Error)> {
        let step = |name| move |error: io::Error| (name, error);
        charge::prepare().map_err(|errno| ("limits of sandboxes", errno.into()))?;
        let hierarchies = Hierarchies::find().map_err(step("find cgroups"))?;
        let groups = Base::make(&hierarchies, &config.cgroup).map_err(step("make cgroups"))?;
        for name in ["sandboxes", "trash", "launcher"] {
            std::fs::create_dir_all(config.data_dir.join(name)).map_err(step("directories"))?;
        }
        let skeleton = image::host(&config.data_dir).map_err(step("host image"))?;
        let agent =
            sealed("isolet-agent", &std::fs::read(&config.agent).map_err(step("read agent"))?);
        private().map_err(step("mount namespace"))?;
        let room = config.data_dir.join("launcher");
        let (dev, sys) = templates(&room).map_err(step("template trees"))?;
        let (own, empty) = emptiness(&room).map_err(step("empty namespace"))?;
        let network = crate::links::own().map_err(|errno| ("network namespace", errno.into()))?;
        Ok(Self {
            config,
            groups,
            skeleton,
            dev,
            sys,
            empty,
            own,
            network,
            agent: agent.map_err(step("agent in memory"))?,
            agent_filter: compile(Whose::Agent),
            tenant_filter: sealed("filter", &bytes(Whose::Tenant))
                .map_err(step("filter in memory"))?,
        })
    }
}

/// A mount namespace of our own that still follows what the host unmounts.
fn private() -> io::Result<()> {
    isolet_sys::namespaces::unshare(UnshareFlags::NEWNS)?;
    let follow = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", follow)?)
}

/// A new file system of kind `kind`, not attached anywhere.
pub(crate) fn filesystem(
    kind: &str,
    options: &[(&str, &str)],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let opened = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(opened.as_fd(), *key)?;
        } else {
            rustix::mount::fsconfig_set_string(opened.as_fd(), *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(opened.as_fd())?;
    rustix::mount::fsmount(opened.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Attaches a detached tree at a path.
pub(crate) fn attach(tree: BorrowedFd<'_>, at: &std::path::Path) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", CWD, at, flags)
}

/// A copy of the mount that `path` below `from` lies on, from `path` down, not attached anywhere.
pub(crate) fn copy(
    from: BorrowedFd<'_>,
    path: &std::path::Path,
    recursive: bool,
) -> rustix::io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if path.as_os_str().is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(from, path, flags)
}

/// `/dev` and `/sys` for all sandboxes, attached below `room` in this namespace alone.
fn templates(room: &std::path::Path) -> io::Result<(OwnedFd, OwnedFd)> {
    let base = filesystem("tmpfs", &[("mode", "0700"), ("size", "64k")], MountAttrFlags::empty())?;
    attach(base.as_fd(), room)?;
    for name in ["dev", "sys", "root"] {
        std::fs::create_dir(room.join(name))?;
    }
    let dev = devices(&room.join("dev"))?;
    let sys = topology(&room.join("sys"))?;
    Ok((dev, sys))
}

fn devices(at: &std::path::Path) -> io::Result<OwnedFd> {
    let options = [("mode", "0755"), ("size", "64k")];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let tree = filesystem("tmpfs", &options, flags)?;
    attach(tree.as_fd(), at)?;
    for (name, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        let device = rustix::fs::makedev(*major, *minor);
        rustix::fs::mknodat(&tree, *name, FileType::CharacterDevice, mode, device)?;
        rustix::fs::chmodat(&tree, *name, mode, rustix::fs::AtFlags::empty())?;
    }
    for name in ["pts", "shm"] {
        rustix::fs::mkdirat(&tree, name, Mode::from_raw_mode(0o755))?;
    }
    let links = [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ];
    for (target, name) in links {
        rustix::fs::symlinkat(target, &tree, name)?;
    }
    attributes::set_attributes(tree.as_fd(), attributes::RDONLY, false)?;
    Ok(tree)
}

/// Programs count processors here; the rest of `/sys` is the host's own business.
fn topology(at: &std::path::Path) -> io::Result<OwnedFd> {
    let tree = filesystem("tmpfs", &[("mode", "0755"), ("size", "64k")], MountAttrFlags::empty())?;
    attach(tree.as_fd(), at)?;
    std::fs::create_dir_all(at.join("fs/cgroup"))?;
    for name in ["cpu", "node"] {
        let path = PathBuf::from("devices/system").join(name);
        std::fs::create_dir_all(at.join(&path))?;
        let source = PathBuf::from("/sys").join(&path);
        if source.is_dir() {
            let part = copy(CWD, &source, false)?;
            attach(part.as_fd(), &at.join(&path))?;
        }
    }
    let all = attributes::RDONLY | attributes::NOSUID | attributes::NODEV | attributes::NOEXEC;
    attributes::set_attributes(tree.as_fd(), all, true)?;
    Ok(tree)
}

/// A namespace whose root is an empty read-only tree: children are cloned out of it, so that they
/// inherit no mount of the host that they would have to give up.
fn emptiness(room: &std::path::Path) -> io::Result<(OwnedFd, OwnedFd)> {
    let namespace =
        || rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let own = namespace()?;
    let root = room.join("root");
    isolet_sys::namespaces::unshare(UnshareFlags::NEWNS)?;
    let made = (|| -> io::Result<OwnedFd> {
        let empty = namespace()?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private)?;
        let tree =
            filesystem("tmpfs", &[("mode", "0755"), ("size", "16k")], MountAttrFlags::empty())?;
        attach(tree.as_fd(), &root)?;
        let numbers = (0..LAYERS_MAX).map(|number| number.to_string());
        for name in PLACES.iter().map(|name| (*name).to_owned()).chain(numbers) {
            rustix::fs::mkdirat(&tree, name, Mode::from_raw_mode(0o755))?;
        }
        rustix::process::chdir(&root)?;
        rustix::process::pivot_root(".", ".")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        visible_proc()?;
        let flags = attributes::RDONLY | attributes::NODEV | attributes::NOSUID;
        attributes::set_attributes(tree.as_fd(), flags, false)?;
        Ok(empty)
    })();
    enter(own.as_fd())?;
    Ok((own, made?))
}

/// The kernel lets a user namespace mount `/proc` only where one is visible already. This one
/// belongs to a process namespace that has ended: it shows no process, of the host or another.
fn visible_proc() -> io::Result<()> {
    let child =
        isolet_sys::namespaces::fork_in_namespaces(libc::CLONE_NEWPID as u64, None, || {
            let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            let mounted = filesystem("proc", &[], flags)
                .and_then(|proc| attach(proc.as_fd(), std::path::Path::new("/proc")));
            i32::from(mounted.is_err())
        })?;
    use rustix::event::{PollFd, PollFlags, poll};
    poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], None)?;
    match std::path::Path::new("/proc/sys").try_exists()? {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Stands in another mount namespace from here on.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> rustix::io::Result<()> {
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Mount))
}
