//! Id maps: of user namespaces, and of mounts that show files under other ids than those on disk.

use crate::config::{UID_BASE, UIDS};
use crate::kernel::mount::{attributes, clone_tree};
use isolet_sys::namespaces::pin_userns;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Maps user and group ids of the user namespace of a process. Each line of `map` is `first inside,
/// first outside, count`.
pub(crate) fn map_namespace(pid: i32, map: &str) -> Result<(), Errno> {
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{pid}/{file}");
        let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(file, map.as_bytes())?;
    }
    Ok(())
}

/// A user namespace without processes, which only defines how a mount maps ids: the ids inside are
/// those on disk, the ids outside are those that the mount shows.
pub(crate) fn mount_ids(map: &str) -> Result<OwnedFd, Errno> {
    let pinned =
        pin_userns().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    map_namespace(pinned.pid, map)?;
    let path = format!("/proc/{}/ns/user", pinned.pid);
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Tries whether the file system of a directory can show files under other ids. Needs root, and a
/// process with one thread whose children are reaped.
///
/// # Errors
/// `EINVAL` where the file system cannot; otherwise the kernel's.
pub(crate) fn try_mapping(directory: &Path) -> Result<(), Errno> {
    let ids = mount_ids(&format!("0 {UID_BASE} {UIDS}"))?;
    let tree = clone_tree(CWD, directory, false)?;
    let on_disk = rustix::fs::statat(&tree, "", AtFlags::EMPTY_PATH)?.st_uid;
    let flags = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
    attributes::map_ids(tree.as_fd(), ids.as_fd(), flags)?;
    let shown = rustix::fs::statat(&tree, "", AtFlags::EMPTY_PATH)?.st_uid;
    if shown == on_disk { Err(Errno::INVAL) } else { Ok(()) }
}
