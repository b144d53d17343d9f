//! A root that is made of an image: nothing is mounted, and nothing made, on what its files say.
//!
//! Its top layer is one of ours and has real directories at every place that something is mounted
//! on. That they are is looked at again here, by the kernel: a link in the way is an error.

use crate::scoped::find;
use isolet_wire::launch::Root;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};
use std::os::fd::{AsFd, OwnedFd};

/// Where the root stands while it is made.
const NEW: &str = "/new";

fn new() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, NEW, flags, Mode::empty())
}

/// Attaches a tree at a directory below the new root, through no link.
pub(crate) fn place(tree: &OwnedFd, at: &str) -> Result<(), Errno> {
    let target = find(new()?.as_fd(), at, OFlags::DIRECTORY)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree.as_fd(), "", target.as_fd(), "", flags)
}

/// Makes the directory that programs begin in. Links of the image lead where they would inside.
pub(crate) fn start(root: &Root) -> Result<(), Errno> {
    let Some(cwd) = &root.cwd else { return Ok(()) };
    let new = new()?;
    let open = |path: &str| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&new, path, flags, Mode::empty(), within)
    };
    let mut at = open(".")?;
    let ends = cwd.match_indices('/').map(|(end, _)| end).chain([cwd.len()]);
    for end in ends.filter(|end| *end > 0) {
        let path = &cwd[..end];
        at = match open(path) {
            Err(Errno::NOENT) => {
                let name = path.rsplit('/').next().unwrap_or(path);
                rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                let made = open(path)?;
                // What is above it is root's. The sandbox's ids lie one above the tenant's here.
                let (uid, gid) = if end == cwd.len() { (root.uid, root.gid) } else { (0, 0) };
                let ids = (Some(Uid::from_raw(uid + 1)), Some(Gid::from_raw(gid + 1)));
                rustix::fs::chownat(&made, "", ids.0, ids.1, AtFlags::EMPTY_PATH)?;
                made
            }
            found => found?,
        };
    }
    Ok(())
}
