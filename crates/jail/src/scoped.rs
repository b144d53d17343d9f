//! The child's side of a session's scope: from the sandbox's mounts to those that the session may
//! see, in namespaces of its own, and then to its agent.
//!
//! What was granted is taken by descriptor before anything is covered, and never looked up by
//! name again: others work in the same directories meanwhile. What was not granted is not only
//! covered but unmounted here: nothing below the cover is left to be uncovered.

use crate::agent::{self, Given};
use crate::host::{Host, attach, copy, filesystem};
use isolet_sys::mount as attributes;
use isolet_wire::launch::{Grant, Scope};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MoveMountFlags, UnmountFlags, move_mount};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The tenant's root, under the sandbox's ids.
const ROOT: u32 = 1;
/// The tenant's user 1000, likewise.
const USER: u32 = 1001;

/// What every session has to itself beside its grants: where, with which bits, whose.
const OWN: &[(&str, &str, u32, u32)] = &[
    ("tmp", "/tmp", 0o1777, ROOT),
    ("vartmp", "/var/tmp", 0o1777, ROOT),
    ("shm", "/dev/shm", 0o1777, ROOT),
    ("run", "/run", 0o755, ROOT),
    ("root", "/root", 0o700, ROOT),
    ("home", "/home", 0o755, ROOT),
];

/// How often a path is looked up that others rename meanwhile.
const FIND_TRIES: u32 = 64;

/// A granted tree, taken out of the workspace.
struct Taken {
    tree: OwnedFd,
    directory: bool,
}

struct Scoped<'a> {
    host: &'a Host,
    order: &'a Scope,
    /// As the grants; `None` where one for reading is not there.
    taken: Vec<Option<Taken>>,
}

type Step = fn(&mut Scoped<'_>) -> Result<(), Errno>;

/// Every step after the grants were taken, in order.
const STEPS: &[(&str, Step)] = &[
    ("cover", cover),
    ("devices", |_| devices()),
    ("own directories", own),
    ("read-only root", read_only),
    ("proc", |_| proc()),
    ("mask proc", |_| agent::mask()),
    ("process limits", |_| agent::limits()),
    ("enter", |_| rustix::process::chdir("/")),
    ("drop capabilities", |_| agent::drop_capabilities()),
    ("filter", |scoped| agent::filter(scoped.host)),
];

/// Runs the steps and becomes the agent. Comes back only when one failed, having told which.
pub(crate) fn run(host: &Host, order: &Scope, given: &Given<'_>) -> i32 {
    isolet_sys::exec::reset_signals();
    let mut scoped = Scoped { host, order, taken: Vec::with_capacity(order.grants.len()) };
    if let Err(errno) = agent::become_root() {
        return agent::tell(given.signal, "become root inside", errno);
    }
    if let Err((step, errno)) = scoped.take() {
        return agent::tell(given.signal, &step, errno);
    }
    for (name, step) in STEPS {
        if let Err(errno) = step(&mut scoped) {
            return agent::tell(given.signal, name, errno);
        }
    }
    drop(scoped);
    agent::tell(given.signal, "execute the agent", agent::execute(host, given))
}

impl Scoped<'_> {
    fn take(&mut self) -> Result<(), (String, Errno)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let workspace = rustix::fs::open("/workspace", flags, Mode::empty())
            .map_err(|errno| ("workspace".to_owned(), errno))?;
        for (index, grant) in self.order.grants.iter().enumerate() {
            let taken = match taken(workspace.as_fd(), grant) {
                Err(errno) if absent(self.order, grant, errno) => None,
                taken => Some(taken.map_err(|errno| (format!("grant {index}"), errno))?),
            };
            self.taken.push(taken);
        }
        Ok(())
    }
}

/// Whether a grant is left out where it is not to be had.
pub(crate) fn absent(order: &Scope, grant: &Grant, errno: Errno) -> bool {
    let gone = matches!(errno, Errno::NOENT | Errno::LOOP | Errno::NOTDIR);
    gone && !grant.write && !order.strict
}

/// A copy of the mount from the granted path on.
fn taken(workspace: BorrowedFd<'_>, grant: &Grant) -> Result<Taken, Errno> {
    let found = find(workspace, &grant.path, OFlags::empty())?;
    let kind = kind(found.as_fd())?;
    let tree = copy(found.as_fd(), Path::new(""), true)?;
    let only = if grant.write { 0 } else { attributes::RDONLY };
    attributes::set_attributes(tree.as_fd(), only | attributes::NOSUID | attributes::NODEV, true)?;
    Ok(Taken { tree, directory: kind == FileType::Directory })
}

/// What may be granted: a directory or a file.
pub(crate) fn kind(found: BorrowedFd<'_>) -> Result<FileType, Errno> {
    let kind = FileType::from_raw_mode(rustix::fs::statat(found, "", AtFlags::EMPTY_PATH)?.st_mode);
    match kind {
        FileType::Directory | FileType::RegularFile => Ok(kind),
        FileType::Symlink => Err(Errno::LOOP),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// By one call of the kernel, which leaves neither by `..` nor by a link.
pub(crate) fn find(from: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { "." } else { path };
    let flags = flags | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut found = Err(Errno::AGAIN);
    for _ in 0..FIND_TRIES {
        found = rustix::fs::openat2(from, path, flags, Mode::empty(), within);
        // Something was renamed meanwhile.
        if !matches!(found, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    found
}

pub(crate) fn give(file: BorrowedFd<'_>, id: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::fs::chownat(file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
}

/// Whether a grant lies within another that is there, or is the whole.
fn nested(path: &str, there: &BTreeSet<&str>) -> bool {
    let mut at = path;
    while let Some((above, _)) = at.rsplit_once('/') {
        if there.contains(above) {
            return true;
        }
        at = above;
    }
    !path.is_empty() && there.contains("")
}

/// Puts an empty read-only tree in place of the workspace, and the grants into it.
fn cover(scoped: &mut Scoped<'_>) -> Result<(), Errno> {
    let grants = scoped.order.grants.iter().zip(std::mem::take(&mut scoped.taken));
    let mut grants: Vec<_> =
        grants.filter_map(|(grant, taken)| Some((grant.path.as_str(), taken?))).collect();
    let there: BTreeSet<&str> = grants.iter().map(|(path, _)| *path).collect();
    let base = if there.contains("") {
        grants.remove(0).1.tree
    } else {
        skeleton(grants.iter().filter(|(path, _)| !nested(path, &there)))?
    };
    rustix::mount::unmount("/workspace", UnmountFlags::DETACH)?;
    attach(base.as_fd(), Path::new("/workspace"))?;
    for (path, taken) in &grants {
        let target = find(base.as_fd(), path, OFlags::empty())?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(taken.tree.as_fd(), "", target.as_fd(), "", flags)?;
    }
    Ok(())
}

/// Directories and empty files for grants to be attached to, that nobody can change.
fn skeleton<'a>(grants: impl Iterator<Item = &'a (&'a str, Taken)>) -> Result<OwnedFd, Errno> {
    let whose = ROOT.to_string();
    let options =
        [("mode", "0755"), ("size", "64k"), ("uid", whose.as_str()), ("gid", whose.as_str())];
    let tree = filesystem("tmpfs", &options, MountAttrFlags::empty())?;
    let mut made = BTreeSet::new();
    for (path, taken) in grants {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let part = &path[..end];
            if !made.insert(part) {
                continue;
            }
            if end == path.len() && !taken.directory {
                let mode = Mode::from_raw_mode(0o644);
                rustix::fs::mknodat(&tree, part, FileType::RegularFile, mode, 0)?;
            } else {
                rustix::fs::mkdirat(&tree, part, Mode::from_raw_mode(0o755))?;
            }
            let (uid, gid) = (Uid::from_raw(ROOT), Gid::from_raw(ROOT));
            rustix::fs::chownat(&tree, part, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
    attributes::set_attributes(tree.as_fd(), flags, false)?;
    Ok(tree)
}

/// One file system in memory with a directory for each place of its own.
fn own(scoped: &mut Scoped<'_>) -> Result<(), Errno> {
    let size = format!("{}m", (scoped.order.memory_mib / 2).max(1));
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let memory = filesystem("tmpfs", &[("mode", "0755"), ("size", &size)], flags)?;
    for (name, _, mode, id) in OWN {
        rustix::fs::mkdirat(&memory, *name, Mode::from_raw_mode(*mode))?;
        give(find(memory.as_fd(), name, OFlags::DIRECTORY)?.as_fd(), *id)?;
    }
    rustix::fs::mkdirat(&memory, "home/user", Mode::from_raw_mode(0o755))?;
    give(find(memory.as_fd(), "home/user", OFlags::DIRECTORY)?.as_fd(), USER)?;
    // Attached first, and covered by a part of itself: parts are copied of what is attached.
    attach(memory.as_fd(), Path::new("/dev/shm"))?;
    let mut parts = Vec::with_capacity(OWN.len());
    for (name, _, _, _) in OWN {
        parts.push(copy(memory.as_fd(), Path::new(name), false)?);
    }
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for (part, (_, place, _, _)) in parts.iter().zip(OWN) {
        // Not through a link that somebody else in the sandbox has put there.
        let target = find(root.as_fd(), place.trim_start_matches('/'), OFlags::DIRECTORY)?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(part.as_fd(), "", target.as_fd(), "", flags)?;
    }
    Ok(())
}

/// The rest of the sandbox's files are to be read only.
fn read_only(_: &mut Scoped<'_>) -> Result<(), Errno> {
    for place in ["/", "/usr"] {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mount = rustix::fs::openat(CWD, place, flags, Mode::empty());
        let set =
            mount.and_then(|at| attributes::set_attributes(at.as_fd(), attributes::RDONLY, false));
        match set {
            // A root that is made of an image is one mount: `/usr` is a directory of it, or not there.
            Err(Errno::INVAL | Errno::NOENT) if place == "/usr" => {}
            done => done?,
        }
    }
    Ok(())
}

/// Shows this process namespace alone. The other one goes last: the kernel lets nobody mount
/// `/proc` who sees none.
fn proc() -> Result<(), Errno> {
    let fresh = filesystem("proc", &[], agent::plain())?;
    rustix::mount::unmount("/proc", UnmountFlags::DETACH)?;
    attach(fresh.as_fd(), Path::new("/proc"))
}

/// The same devices, with terminals of its own; the sandbox's go with its shared memory.
fn devices() -> Result<(), Errno> {
    let devices = copy(CWD, Path::new("/dev"), false)?;
    rustix::mount::unmount("/dev", UnmountFlags::DETACH)?;
    attach(devices.as_fd(), Path::new("/dev"))?;
    attach(agent::terminals(agent::SCOPE_TERMINALS)?.as_fd(), Path::new("/dev/pts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_nested_where_one_above_it_is_there() {
        let there = BTreeSet::from(["a", "b/c"]);
        assert!(nested("a/x", &there) && nested("b/c/d/e", &there));
        assert!(!nested("a", &there) && !nested("ab/x", &there) && !nested("b/d", &there));
        assert!(nested("z", &BTreeSet::from([""])) && !nested("", &BTreeSet::from([""])));
    }
}
