//! The new root while it is assembled. Files of an image never decide on which path something is
//! mounted or created.
//!
//! The top layer of such a root is our own, and has real directories at every mount point. The
//! kernel checks that again here: a symbolic link on the path is an error.

use crate::kernel::mount::attach_at;
use crate::kernel::rooted::{chown, open_beneath};
use isolet_wire::launcher::Root;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// The path of the root while it is assembled.
pub(super) const NEW_ROOT: &str = "/new";

fn open_new_root() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, NEW_ROOT, flags, Mode::empty())
}

/// Attaches a tree at a directory below the new root. Follows no symbolic link.
pub(super) fn attach_below(tree: &OwnedFd, path: &str) -> Result<(), Errno> {
    let target = open_beneath(open_new_root()?.as_fd(), path, OFlags::DIRECTORY)?;
    attach_at(tree.as_fd(), target.as_fd())
}

/// Attaches a file over one below the new root, if there is one. Follows no symbolic link.
pub(super) fn attach_file_below(file: &OwnedFd, path: &str) -> Result<(), Errno> {
    match open_beneath(open_new_root()?.as_fd(), path, OFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        target => attach_at(file.as_fd(), target?.as_fd()),
    }
}

/// Creates the directory that programs start in, with its parents. Symbolic links of the image
/// resolve as they do inside.
pub(super) fn create_start_directory(root: &Root) -> Result<(), Errno> {
    let Some(cwd) = &root.cwd else { return Ok(()) };
    let new_root = open_new_root()?;
    let open = |path: &str| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&new_root, path, flags, Mode::empty(), resolve)
    };
    let mut parent = open(".")?;
    let ends = cwd.match_indices('/').map(|(end, _)| end).chain([cwd.len()]);
    for end in ends.filter(|end| *end > 0) {
        let path = &cwd[..end];
        parent = match open(path) {
            Err(Errno::NOENT) => {
                let name = path.rsplit('/').next().unwrap_or(path);
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
                let created = open(path)?;
                // Root owns the parents. Here the sandbox's ids are the tenant's plus one.
                let (uid, gid) = if end == cwd.len() { (root.uid, root.gid) } else { (0, 0) };
                chown(created.as_fd(), uid + 1, gid + 1)?;
                created
            }
            opened => opened?,
        };
    }
    Ok(())
}
