//! The child's side of making a sandbox: from an empty tree in new namespaces to the agent.
//!
//! The list in [`STEPS`] is the order. None of them needs an undo: everything made here goes with
//! the process's namespaces.

use crate::agent::{self, Given};
use crate::config::TENANT_UIDS;
use crate::host::{Host, LAYERS_MAX, attach, copy, filesystem};
use crate::root;
use isolet_sys::mount as attributes;
use isolet_sys::namespaces::pin_userns;
use isolet_wire::launch::Spec;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Everything that a child needs, made before it is born.
pub(crate) struct Parts {
    pub(crate) own: OwnedFd,
    /// What the server puts there for it to read.
    pub(crate) given: OwnedFd,
    pub(crate) dev: OwnedFd,
    pub(crate) sys: OwnedFd,
    pub(crate) listen: OwnedFd,
    pub(crate) oom: Option<OwnedFd>,
    pub(crate) tenant: OwnedFd,
    pub(crate) tasks: Vec<OwnedFd>,
    pub(crate) signal: OwnedFd,
}

/// What the steps hand on.
struct Inside<'a> {
    host: &'a Host,
    spec: &'a Spec,
    parts: &'a Parts,
    /// Layers of its root, the top one first; of the host's: what is made for it, and `/usr`.
    trees: Vec<OwnedFd>,
    userns: Option<OwnedFd>,
}

type Step = fn(&mut Inside<'_>) -> Result<(), Errno>;

/// Every step, in order.
const STEPS: &[(&str, Step)] = &[
    ("trees from the launcher", receive),
    ("become root inside", |_| agent::become_root()),
    ("host name", hostname),
    ("own files", own),
    ("spare room", spare_used),
    ("root file system", root),
    ("programs", programs),
    ("spare room again", spare_kept),
    ("workspace", workspace),
    ("what it is given", given),
    ("start directory", start_directory),
    ("proc", proc),
    ("devices", devices),
    ("sys", sys),
    ("let go of the parts", let_go),
    ("enter", enter),
    ("loopback", loopback),
    ("kernel settings", settings),
    ("mask proc", |_| agent::mask()),
    ("process limits", |_| agent::limits()),
    ("cgroup namespace", cgroup_namespace),
    ("tenant's user namespace", tenant_namespace),
    ("drop capabilities", |_| agent::drop_capabilities()),
    ("filter", |inside| agent::filter(inside.host)),
];

/// Runs the steps and becomes the agent. Comes back only when one failed, having told which.
pub(crate) fn run(host: &Host, spec: &Spec, parts: &Parts) -> i32 {
    isolet_sys::exec::reset_signals();
    let mut inside = Inside { host, spec, parts, trees: Vec::new(), userns: None };
    for (name, step) in STEPS {
        if let Err(errno) = step(&mut inside) {
            return agent::tell(&parts.signal, name, errno);
        }
    }
    let Some(userns) = &inside.userns else {
        return agent::tell(&parts.signal, "tenant's user namespace", Errno::BADF);
    };
    let given = Given {
        listen: &parts.listen,
        userns,
        tenant: &parts.tenant,
        tasks: &parts.tasks,
        oom: parts.oom.as_ref(),
        user: spec.root.as_ref().map_or((0, 0), |root| (root.uid, root.gid)),
        signal: &parts.signal,
    };
    let errno = agent::execute(host, &given);
    agent::tell(&parts.signal, "execute the agent", errno)
}

fn receive(inside: &mut Inside<'_>) -> Result<(), Errno> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LAYERS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0_u8; 2];
    let mut into = [std::io::IoSliceMut::new(&mut bytes)];
    let got = recvmsg(&inside.parts.signal, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes != 2 {
        // The launcher died before it had said everything.
        return Err(Errno::CONNRESET);
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            inside.trees.extend(fds);
        }
    }
    Ok(())
}

fn hostname(inside: &mut Inside<'_>) -> Result<(), Errno> {
    rustix::system::sethostname(inside.spec.hostname.as_bytes())
}

/// An overlay of the sandbox's own, `part`, over what lies at `lower`: paths with colons between.
fn overlay(lower: &str, part: &str, to: &str) -> Result<(), Errno> {
    let (upper, work) = (format!("/own/{part}/upper"), format!("/own/{part}/work"));
    let options = [
        ("source", "overlay"),
        ("lowerdir", lower),
        ("upperdir", upper.as_str()),
        ("workdir", work.as_str()),
        ("userxattr", ""),
    ];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mounted = filesystem("overlay", &options, flags)?;
    attach(mounted.as_fd(), Path::new(to))
}

fn own(inside: &mut Inside<'_>) -> Result<(), Errno> {
    attach(inside.parts.own.as_fd(), Path::new("/own"))
}

/// Files that take a little of a limited disk and give it up while overlays are mounted, which
/// make files of their own: a sandbox whose disk is full could not wake otherwise. Kept again
/// before anything of the tenant's runs.
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
/// How much each of them takes: two blocks.
const SPARE_BYTES: usize = 8192;

fn spare_used(inside: &mut Inside<'_>) -> Result<(), Errno> {
    for path in SPARE.iter().filter(|_| inside.spec.limits.disk_mib > 0) {
        match rustix::fs::unlink(*path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn spare_kept(inside: &mut Inside<'_>) -> Result<(), Errno> {
    for path in SPARE.iter().filter(|_| inside.spec.limits.disk_mib > 0) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let kept = rustix::fs::open(*path, flags, Mode::from_raw_mode(0o600))
            .and_then(|file| rustix::io::write(file, &[1; SPARE_BYTES]));
        match kept {
            // As much as there is.
            Ok(_) | Err(Errno::NOSPC) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn root(inside: &mut Inside<'_>) -> Result<(), Errno> {
    let Some(root) = &inside.spec.root else {
        let [skeleton, _] = &inside.trees[..] else { return Err(Errno::BADF) };
        attach(skeleton.as_fd(), Path::new("/etc"))?;
        return overlay("/etc", "root", "/new");
    };
    if inside.trees.len() != root.layers.len() {
        return Err(Errno::BADF);
    }
    let mut lower = Vec::with_capacity(inside.trees.len());
    for (number, tree) in inside.trees.iter().enumerate() {
        let place = format!("/{number}");
        attach(tree.as_fd(), Path::new(&place))?;
        lower.push(place);
    }
    overlay(&lower.join(":"), "root", "/new")
}

fn programs(inside: &mut Inside<'_>) -> Result<(), Errno> {
    if inside.spec.root.is_some() {
        return Ok(());
    }
    let [_, usr] = &inside.trees[..] else { return Err(Errno::BADF) };
    attach(usr.as_fd(), Path::new("/usr"))?;
    overlay("/usr", "usr", "/new/usr")
}

fn start_directory(inside: &mut Inside<'_>) -> Result<(), Errno> {
    match &inside.spec.root {
        Some(order) if !inside.spec.kept => root::start(order),
        _ => Ok(()),
    }
}

fn workspace(_: &mut Inside<'_>) -> Result<(), Errno> {
    let tree = copy(CWD, Path::new("/own/workspace"), false)?;
    attributes::set_attributes(tree.as_fd(), attributes::NOSUID | attributes::NODEV, false)?;
    root::place(&tree, "workspace")
}

/// Read-only, and changed from outside alone. A root that was made without its place has none.
fn given(inside: &mut Inside<'_>) -> Result<(), Errno> {
    match root::place(&inside.parts.given, "etc/isolet") {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        done => done,
    }
}

fn proc(_: &mut Inside<'_>) -> Result<(), Errno> {
    let mounted = filesystem("proc", &[], agent::plain())?;
    root::place(&mounted, "proc")
}

fn devices(inside: &mut Inside<'_>) -> Result<(), Errno> {
    root::place(&inside.parts.dev, "dev")?;
    root::place(&agent::terminals(agent::SANDBOX_TERMINALS)?, "dev/pts")?;
    let size = format!("{}m", (inside.spec.limits.memory_mib / 2).max(1));
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let options = [("mode", "1777"), ("size", &size), ("uid", "1"), ("gid", "1")];
    let shared = filesystem("tmpfs", &options, flags)?;
    root::place(&shared, "dev/shm")
}

fn sys(inside: &mut Inside<'_>) -> Result<(), Errno> {
    root::place(&inside.parts.sys, "sys")
}

fn let_go(inside: &mut Inside<'_>) -> Result<(), Errno> {
    rustix::mount::unmount("/own", UnmountFlags::DETACH)?;
    let count = std::mem::take(&mut inside.trees).len();
    if inside.spec.root.is_some() {
        return (0..count).try_for_each(|number| {
            rustix::mount::unmount(format!("/{number}"), UnmountFlags::DETACH)
        });
    }
    ["/etc", "/usr"]
        .iter()
        .try_for_each(|place| rustix::mount::unmount(*place, UnmountFlags::DETACH))
}

/// Covers the empty root with the new one. What lies below is an empty read-only tree, so nothing
/// needs to be given up, and `pivot_root`'s walk over every process of the host is spared.
fn enter(_: &mut Inside<'_>) -> Result<(), Errno> {
    rustix::process::chdir("/new")?;
    rustix::mount::mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")
}

/// Where it has a link, this was done when its network was prepared.
fn loopback(inside: &mut Inside<'_>) -> Result<(), Errno> {
    if inside.spec.linked { Ok(()) } else { isolet_sys::loopback::bring_up() }
}

fn write(path: &str, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes()).map(drop)
}

fn settings(inside: &mut Inside<'_>) -> Result<(), Errno> {
    if !inside.spec.linked {
        write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")?;
        write("/proc/sys/net/ipv4/ping_group_range", "0 65535")?;
    }
    // The tenant's own namespace is the one; nobody inside makes another.
    write("/proc/sys/user/max_user_namespaces", "1")
}

fn cgroup_namespace(_: &mut Inside<'_>) -> Result<(), Errno> {
    isolet_sys::namespaces::unshare(UnshareFlags::NEWCGROUP)
}

/// A user namespace below ours that knows every id but the agent's.
fn tenant_namespace(inside: &mut Inside<'_>) -> Result<(), Errno> {
    use rustix::process::DumpableBehavior;
    // The change of user made the files in /proc of this memory the host root's.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let holder =
        pin_userns().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    let map = format!("0 1 {TENANT_UIDS}");
    write(&format!("/proc/{}/uid_map", holder.pid), &map)?;
    write(&format!("/proc/{}/gid_map", holder.pid), &map)?;
    let path = format!("/proc/{}/ns/user", holder.pid);
    inside.userns = Some(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
