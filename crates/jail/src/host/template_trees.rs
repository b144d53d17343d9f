//! The `/dev` and `/sys` of every sandbox. Sandboxes get copies of these mounts.

use crate::kernel::mount::{attach, attributes, clone_tree, new_filesystem};
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::mount::MountAttrFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Device nodes of every sandbox: name, major, minor.
const DEVICES: &[(&str, u32, u32)] = &[
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

pub(super) struct TemplateTrees {
    pub(super) dev: OwnedFd,
    pub(super) sys: OwnedFd,
}

/// Creates both trees. They are attached below `mount_point`, in the launcher's namespace only.
pub(super) fn create(mount_point: &Path) -> io::Result<TemplateTrees> {
    let options = [("mode", "0700"), ("size", "64k")];
    let base = new_filesystem("tmpfs", &options, MountAttrFlags::empty())?;
    attach(base.as_fd(), mount_point)?;
    for name in ["dev", "sys", "root"] {
        std::fs::create_dir(mount_point.join(name))?;
    }
    let dev = devices(&mount_point.join("dev"))?;
    let sys = topology(&mount_point.join("sys"))?;
    Ok(TemplateTrees { dev, sys })
}

fn devices(at: &Path) -> io::Result<OwnedFd> {
    let options = [("mode", "0755"), ("size", "64k")];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let tree = new_filesystem("tmpfs", &options, flags)?;
    attach(tree.as_fd(), at)?;
    for (name, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        let device = rustix::fs::makedev(*major, *minor);
        rustix::fs::mknodat(&tree, *name, FileType::CharacterDevice, mode, device)?;
        rustix::fs::chmodat(&tree, *name, mode, AtFlags::empty())?;
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

/// Programs count processors here. The rest of the host's `/sys` is not shown.
fn topology(at: &Path) -> io::Result<OwnedFd> {
    let options = [("mode", "0755"), ("size", "64k")];
    let tree = new_filesystem("tmpfs", &options, MountAttrFlags::empty())?;
    attach(tree.as_fd(), at)?;
    std::fs::create_dir_all(at.join("fs/cgroup"))?;
    for name in ["cpu", "node"] {
        let path = PathBuf::from("devices/system").join(name);
        std::fs::create_dir_all(at.join(&path))?;
        let source = PathBuf::from("/sys").join(&path);
        if source.is_dir() {
            let part = clone_tree(CWD, &source, false)?;
            attach(part.as_fd(), &at.join(&path))?;
        }
    }
    let all = attributes::RDONLY | attributes::NOSUID | attributes::NODEV | attributes::NOEXEC;
    attributes::set_attributes(tree.as_fd(), all, true)?;
    Ok(tree)
}
