//! A mount namespace whose root is an empty read-only tree. Children are cloned out of it, so that
//! they inherit no mount of the host that they would have to unmount.
//!
//! Because there is no old root to leave, `pivot_root` is not needed; it would walk over every
//! process of the host. The empty namespace shows the `/proc` of a process namespace that has
//! ended: the kernel lets a user namespace mount `/proc` only where one is already visible.

use crate::kernel::mount::{NOSUID_NODEV_NOEXEC, attach, attributes, enter, new_filesystem};
use isolet_sys::namespaces::{fork_in_namespaces, unshare};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Directories of the empty tree: where the parts of a sandbox are attached while it is created.
const MOUNT_POINTS: &[&str] = &["new", "own", "proc"];

/// The most layers of a sandbox: those of its image or the directories of the host, and those of
/// snapshots. The empty tree has a mount point for each, named by its number, and the names of all
/// of them fit into a mount option, which the kernel limits to 255 bytes.
pub(crate) const LAYERS_MAX: usize = 64;

pub(super) struct MountNamespaces {
    /// The namespace that this process was in before, and is in now.
    pub(super) own: OwnedFd,
    pub(super) empty: OwnedFd,
}

/// Creates the namespace. `mount_point` has a directory `root` for it.
pub(super) fn create(mount_point: &Path) -> io::Result<MountNamespaces> {
    let own = current()?;
    unshare(UnshareFlags::NEWNS)?;
    let empty = build(&mount_point.join("root"));
    enter(own.as_fd())?;
    Ok(MountNamespaces { own, empty: empty? })
}

fn current() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/proc/self/ns/mnt", flags, Mode::empty())?)
}

/// Replaces the root of the namespace that this process is in.
fn build(root: &Path) -> io::Result<OwnedFd> {
    let empty = current()?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let options = [("mode", "0755"), ("size", "16k")];
    let tree = new_filesystem("tmpfs", &options, MountAttrFlags::empty())?;
    attach(tree.as_fd(), root)?;
    let layers = (0..LAYERS_MAX).map(|number| number.to_string());
    for name in MOUNT_POINTS.iter().map(|name| (*name).to_owned()).chain(layers) {
        rustix::fs::mkdirat(&tree, name, Mode::from_raw_mode(0o755))?;
    }
    rustix::process::chdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    show_proc()?;
    let flags = attributes::RDONLY | attributes::NODEV | attributes::NOSUID;
    attributes::set_attributes(tree.as_fd(), flags, false)?;
    Ok(empty)
}

/// Mounts the `/proc` of a process namespace that has ended, which shows no process. The kernel
/// lets a user namespace mount `/proc` only where one is visible already.
fn show_proc() -> io::Result<()> {
    let child = fork_in_namespaces(libc::CLONE_NEWPID as u64, None, || {
        let mounted = new_filesystem("proc", &[], NOSUID_NODEV_NOEXEC)
            .and_then(|proc| attach(proc.as_fd(), Path::new("/proc")));
        i32::from(mounted.is_err())
    })?;
    poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], None)?;
    match Path::new("/proc/sys").try_exists()? {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
