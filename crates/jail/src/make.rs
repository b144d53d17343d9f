//! The launcher's side of making a sandbox: directories, socket, groups, trees, then a child in
//! new namespaces that makes the rest (`inside.rs`). What was made is taken back when a step fails.

use crate::cgroup::Groups;
use crate::charge;
use crate::config::{AGENT_UID, GIVEN, SCOPES, TENANT_UIDS, UIDS};
use crate::disk;
use crate::host::{Host, LAYERS_MAX, copy, enter};
use crate::inside::{self, Parts};
use crate::links;
use crate::stray;
use isolet_sys::mount as attributes;
use isolet_sys::namespaces::{NETWORK_NAMESPACE, SANDBOX_NAMESPACES, fork_in_namespaces};
use isolet_wire::launch::Spec;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg, socket_with,
};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Waiting connections of an agent that has not accepted yet.
const BACKLOG: i32 = 128;

/// Which step failed, and the kernel's answer.
pub(crate) type Failure = (String, i32);

/// Makes a sandbox and starts its agent; returns the agent's process id. It is born in the network
/// namespace `network`, or in one of its own that has loopback alone.
///
/// # Errors
/// The failed step; nothing of the sandbox is left.
pub fn make(host: &Host, spec: &Spec, network: Option<OwnedFd>) -> Result<i32, Failure> {
    if spec.linked != network.is_some() {
        return Err(failed("network of the link", Errno::BADF));
    }
    let mut directory = Directory::make(host, spec)?;
    let groups = host
        .groups
        .sandbox(&spec.name, &spec.limits)
        .map_err(|error| failed("groups", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let grouped = Grouped(&groups);
    let pid = start(host, spec, &groups, (&mut directory, network))?;
    grouped.keep();
    directory.keep();
    Ok(pid)
}

pub(crate) fn failed(step: &str, errno: Errno) -> Failure {
    (step.to_owned(), errno.raw_os_error())
}

/// A sandbox's directory; removed when it is not kept, unless it stood before.
struct Directory<'a> {
    host: &'a Host,
    spec: &'a Spec,
    fd: OwnedFd,
    /// The file system of its own that holds its files, mounted and attached nowhere.
    disk: Option<OwnedFd>,
}

/// What a sandbox's files lie in, below its directory or its disk.
const PLACES: [&str; 7] =
    ["root", "usr", "root/upper", "root/work", "usr/upper", "usr/work", "workspace"];

impl<'a> Directory<'a> {
    fn make(host: &'a Host, spec: &'a Spec) -> Result<Self, Failure> {
        let step = |name: &'static str| move |errno: Errno| failed(name, errno);
        let path = host.config.sandbox_dir(&spec.name);
        if !spec.kept {
            rustix::fs::mkdir(&path, Mode::from_raw_mode(0o711)).map_err(step("directory"))?;
        }
        let fd = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(step("directory"))?;
        match rustix::fs::mkdirat(&fd, GIVEN, Mode::from_raw_mode(0o755)) {
            // Of an earlier life.
            Err(Errno::EXIST) if spec.kept => {}
            done => done.map_err(step("directory"))?,
        }
        let mut made = Self { host, spec, fd, disk: None };
        if spec.kept {
            made.clear().map_err(step("directory"))?;
        }
        if spec.limits.disk_mib > 0 {
            if !spec.kept {
                disk::make(&path, spec.limits.disk_mib).map_err(step("disk image"))?;
            }
            made.disk = Some(disk::mount(&path).map_err(step("disk"))?);
        }
        if !spec.kept {
            made.fill().map_err(step("directories"))?;
        }
        Ok(made)
    }

    /// What its files lie in.
    fn files(&self) -> BorrowedFd<'_> {
        self.disk.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd)
    }

    fn fill(&self) -> Result<(), Errno> {
        let id = self.host.config.uid_base + self.spec.slot * UIDS;
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        for name in PLACES {
            rustix::fs::mkdirat(self.files(), name, Mode::from_raw_mode(0o755))?;
            if name.contains('/') {
                rustix::fs::chownat(self.files(), name, Some(uid), Some(gid), AtFlags::empty())?;
            }
        }
        // Whoever its programs run as works there.
        let (uid, gid) = self.spec.root.as_ref().map_or((0, 0), |root| (root.uid, root.gid));
        let (uid, gid) = (Uid::from_raw(id + uid), Gid::from_raw(id + gid));
        rustix::fs::chownat(self.files(), "workspace", Some(uid), Some(gid), AtFlags::empty())?;
        if let Some(disk) = &self.disk {
            let (uid, gid) = (Uid::from_raw(id + AGENT_UID), Gid::from_raw(id + AGENT_UID));
            rustix::fs::mkdirat(disk, "spare", Mode::from_raw_mode(0o700))?;
            rustix::fs::chownat(disk, "spare", Some(uid), Some(gid), AtFlags::empty())?;
        }
        Ok(())
    }

    /// Takes away what its earlier life has left of itself, beside its files.
    fn clear(&self) -> Result<(), Errno> {
        // Agents of scopes, which ended with it; what they were told to see is in their sessions' records.
        let scopes = self.host.config.sandbox_dir(&self.spec.name).join(SCOPES);
        isolet_sys::tree::remove(&scopes)?;
        for name in ["agent.sock", "cgroups", stray::FILE] {
            match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        if !self.spec.kept {
            let _ = isolet_sys::tree::remove(&self.host.config.sandbox_dir(&self.spec.name));
        }
    }
}

/// A sandbox's groups; emptied and removed when they are not kept.
struct Grouped<'a>(&'a Groups);

impl Grouped<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Grouped<'_> {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.unified.join("cgroup.kill"), "1");
        for _ in 0..200 {
            self.0.remove_now();
            if !self.0.left() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

fn start(
    host: &Host,
    spec: &Spec,
    groups: &Groups,
    (directory, network): (&mut Directory<'_>, Option<OwnedFd>),
) -> Result<i32, Failure> {
    let step = |name: &'static str| move |errno: Errno| failed(name, errno);
    let text = groups.to_text();
    put(directory.fd.as_fd(), "cgroups", text.as_bytes()).map_err(step("record of groups"))?;
    let listen = listen(directory.fd.as_fd()).map_err(step("socket"))?;
    let agent_id = host.config.uid_base + spec.slot * UIDS + AGENT_UID;
    let tenant = delegate(groups, agent_id).map_err(step("delegate groups"))?;
    let tasks = tasks(groups).map_err(step("task files"))?;
    let mut here = || -> Result<_, Errno> {
        let none = Path::new("");
        let own = match directory.disk.take() {
            Some(disk) => disk,
            None => copy(directory.fd.as_fd(), none, false)?,
        };
        let given = copy(directory.fd.as_fd(), Path::new(GIVEN), false)?;
        let only = attributes::RDONLY | attributes::NOSUID | attributes::NODEV | attributes::NOEXEC;
        attributes::set_attributes(given.as_fd(), only, false)?;
        let (dev, sys) = (copy(host.dev.as_fd(), none, true)?, copy(host.sys.as_fd(), none, true)?);
        Ok((own, given, dev, sys))
    };
    let (own, given, dev, sys) = here().map_err(step("trees"))?;
    let oom = rustix::fs::open(groups.oom(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(step("socket pair"))?;
    let born = rustix::fs::open(groups.agent(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(step("agent's group"))?;
    let parts = Parts { own, given, dev, sys, listen, oom, tenant, tasks, signal: theirs };
    let child = born_in(host, network.as_ref(), |namespaces| {
        enter(host.empty.as_fd()).map_err(step("enter emptiness"))?;
        let child = charge::as_user(agent_id, || {
            fork_in_namespaces(namespaces, Some(born.as_fd()), || inside::run(host, spec, &parts))
        });
        enter(host.own.as_fd()).map_err(step("leave emptiness"))?;
        child.map_err(step("own id"))?.map_err(|error| {
            failed("namespaces", Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })
    })?;
    drop(network);
    drop(parts);
    feed(host, spec, child.pid, &ours)?;
    outcome(ours)?;
    stray::note(directory.fd.as_fd(), child.pid).map_err(step("note of the agent"))?;
    Ok(child.pid)
}

/// Makes a child in the network namespace of its link, which the host's root owns: nobody inside
/// has a right over it. Without a link it has a new one.
fn born_in<R>(
    host: &Host,
    network: Option<&OwnedFd>,
    work: impl FnOnce(u64) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let Some(network) = network else { return work(SANDBOX_NAMESPACES) };
    links::enter(network.as_fd()).map_err(|errno| failed("network of the link", errno))?;
    let made = work(SANDBOX_NAMESPACES & !NETWORK_NAMESPACE);
    // What came next would be born in there.
    links::enter(host.network.as_fd()).expect("back into its own network namespace");
    made
}

fn put(directory: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    rustix::io::write(file, bytes).map(drop)
}

/// The agent's listening socket. Its name lies on the host; the tenant's root does not reach it.
pub(crate) fn listen(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let path = format!("/proc/self/fd/{}/agent.sock", directory.as_raw_fd());
    rustix::net::bind(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Lets the agent, and nobody else inside, put processes into the tenant's group, and make groups
/// below it: one for each process in the background.
fn delegate(groups: &Groups, agent: u32) -> Result<OwnedFd, Errno> {
    let (uid, gid) = (Uid::from_raw(agent), Gid::from_raw(agent));
    let tenant = groups.tenant();
    let procs = [groups.unified.join("cgroup.procs"), tenant.join("cgroup.procs")];
    for path in procs.iter().chain([&tenant]) {
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::empty())?;
    }
    rustix::fs::open(tenant, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

pub(crate) fn tasks(groups: &Groups) -> Result<Vec<OwnedFd>, Errno> {
    let open = |group: &std::path::PathBuf| {
        rustix::fs::open(group.join("tasks"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
    };
    groups.legacy.iter().flatten().map(open).collect()
}

/// Writes the child's id maps, and hands it the trees that show the image under the tenant's ids.
///
/// Root of the sandbox's namespace is the agent's id, not the tenant's root: what the kernel gives
/// to "root of that namespace" (its settings, the files of a process that may not be looked at)
/// is then out of the tenant's reach. The tenant's ids lie behind it, and the tenant's own
/// namespace maps them to 0 and up again.
fn feed(host: &Host, spec: &Spec, pid: i32, to: &OwnedFd) -> Result<(), Failure> {
    let step = |name: &'static str| move |errno: Errno| failed(name, errno);
    let base = host.config.uid_base + spec.slot * UIDS;
    map_ids(pid, &format!("0 {} 1\n1 {base} {TENANT_UIDS}", base + AGENT_UID))
        .map_err(step("map ids"))?;
    let shown = shown_as(&format!("0 {base} {TENANT_UIDS}")).map_err(step("map ids"))?;
    let sources = match &spec.root {
        Some(root) => root.layers.iter().map(|layer| host.config.images().join(layer)).collect(),
        None => vec![host.skeleton.clone(), PathBuf::from("/usr")],
    };
    if sources.len() > LAYERS_MAX {
        return Err(failed("layers", Errno::TOOBIG));
    }
    let mut trees = Vec::with_capacity(sources.len());
    for (index, source) in sources.iter().enumerate() {
        let missing = |errno: Errno| match spec.root.as_ref().map(|root| &root.layers[index]) {
            Some(layer) => failed(&format!("layer {layer}"), errno),
            None => failed("trees of the host", errno),
        };
        let tree = copy(CWD, source, false).map_err(missing)?;
        let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
        attributes::map_ids(tree.as_fd(), shown.as_fd(), flags).map_err(missing)?;
        trees.push(tree);
    }
    let fds: Vec<_> = trees.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LAYERS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = sendmsg(to, &[IoSlice::new(b"go")], &mut control, SendFlags::NOSIGNAL);
    sent.map(drop).map_err(step("hand over the trees"))
}

fn map_ids(pid: i32, map: &str) -> Result<(), Errno> {
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{pid}/{file}");
        let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(file, map.as_bytes())?;
    }
    Ok(())
}

/// A user namespace that nothing runs in: it only says how a mount shows its ids.
fn shown_as(map: &str) -> Result<OwnedFd, Errno> {
    let holder = isolet_sys::namespaces::pin_userns()
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    map_ids(holder.pid, map)?;
    let path = format!("/proc/{}/ns/user", holder.pid);
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Waits until the child has become the agent (end of file) or says which step failed.
pub(crate) fn outcome(from: OwnedFd) -> Result<(), Failure> {
    let mut said = Vec::new();
    let mut from = std::fs::File::from(from);
    let read = from.read_to_end(&mut said);
    if let Err(error) = read {
        return Err(("child".to_owned(), error.raw_os_error().unwrap_or(libc::EIO)));
    }
    if said.is_empty() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&said);
    let (errno, step) = text.split_once(' ').unwrap_or(("5", "child"));
    Err((step.to_owned(), errno.parse().unwrap_or(libc::EIO)))
}
