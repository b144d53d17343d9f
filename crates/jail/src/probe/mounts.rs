//! Mounts what a sandbox consists of: an overlay, a layer under mapped ids, and a disk image.

use super::child::in_child;
use crate::child::step_error::{StepError, at_step};
use crate::config::{TENANT_UIDS, UID_BASE};
use crate::disk::{self, DiskTemplates};
use crate::kernel::id_map::{mount_ids, try_mapping};
use crate::kernel::mount::{NOSUID_NODEV, attach, attributes, clone_tree, new_filesystem};
use isolet_sys::exec::autoreap_children;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The layer that is mounted: a part of the `host` image.
const LAYER: &str = "/usr";
/// The size of the disk image, in MiB. It is sparse.
const DISK_MIB: u64 = 64;

/// A directory in which probes create files. Dropping it removes the directory.
#[derive(Debug)]
pub struct ProbeDirectory(PathBuf);

impl ProbeDirectory {
    /// Creates the directory in `parent`, which should lie on the disk of the data directory.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(parent: &Path) -> io::Result<Self> {
        let path = parent.join(format!(".doctor-{}", std::process::id()));
        isolet_sys::tree::remove(&path)?;
        fs::create_dir(&path)?;
        let created = Self(path);
        for name in ["layer", "upper", "work", "merged", "disk"] {
            fs::create_dir(created.0.join(name))?;
        }
        Ok(created)
    }

    /// The path at which it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ProbeDirectory {
    fn drop(&mut self) {
        // The overlay creates this directory with mode 0, which only root may empty.
        let _ = fs::set_permissions(self.0.join("work/work"), fs::Permissions::from_mode(0o700));
        let _ = isolet_sys::tree::remove(&self.0);
    }
}

/// Shows the host's programs under the ids of a sandbox. Needs root.
///
/// # Errors
/// The failed step; `EINVAL` where the file system cannot map ids.
pub fn id_mapped_mount() -> Result<(), StepError> {
    in_child(libc::CLONE_NEWNS as u64, || {
        autoreap_children();
        let layer = mapped_layer()?;
        let flags = AtFlags::EMPTY_PATH;
        let shown = rustix::fs::statx(&layer, "", flags, StatxFlags::BASIC_STATS)
            .map_err(at_step("look at the layer"))?;
        match shown.stx_uid == UID_BASE {
            true => Ok(()),
            false => Err(StepError::new("map ids of the layer", Errno::INVAL)),
        }
    })
}

/// Shows the files of `directory` under the ids of a sandbox, as files of sandboxes in the data
/// directory are shown. Needs root.
///
/// # Errors
/// `EINVAL` where the file system cannot map ids.
pub fn id_mapped_files(directory: &ProbeDirectory) -> Result<(), StepError> {
    in_child(libc::CLONE_NEWNS as u64, || {
        autoreap_children();
        try_mapping(directory.path()).map_err(at_step("map ids of a directory"))
    })
}

fn mapped_layer() -> Result<OwnedFd, StepError> {
    let ids = mount_ids(&format!("0 {UID_BASE} {TENANT_UIDS}"))
        .map_err(at_step("user namespace of the layer"))?;
    let layer =
        clone_tree(CWD, Path::new(LAYER), false).map_err(at_step("copy the layer's mount"))?;
    attributes::map_ids(layer.as_fd(), ids.as_fd(), attributes::RDONLY)
        .map_err(at_step("map ids of the layer"))?;
    Ok(layer)
}

/// Mounts an overlay whose files lie in `directory`, and writes a file. With `mapped` its lower
/// layer has mapped ids.
///
/// # Errors
/// The failed step.
pub fn overlay(directory: &ProbeDirectory, mapped: bool) -> Result<(), StepError> {
    let path = |name: &str| directory.0.join(name);
    in_child(libc::CLONE_NEWNS as u64, || {
        autoreap_children();
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).map_err(at_step("private mounts"))?;
        let mut lower = PathBuf::from(LAYER);
        if mapped {
            lower = path("layer");
            attach(mapped_layer()?.as_fd(), &lower).map_err(at_step("attach the layer"))?;
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let lower = text(&lower);
        let upper = text(&path("upper"));
        let work = text(&path("work"));
        let options = [
            ("source", "overlay"),
            ("lowerdir", lower.as_str()),
            ("upperdir", upper.as_str()),
            ("workdir", work.as_str()),
            ("userxattr", ""),
        ];
        let merged = path("merged");
        let mounted = new_filesystem("overlay", &options, NOSUID_NODEV)
            .map_err(at_step("mount the overlay"))?;
        attach(mounted.as_fd(), &merged).map_err(at_step("attach the overlay"))?;
        fs::write(merged.join("probe"), "written\n")
            .map_err(|error| StepError::from_io("write into the overlay", &error, Errno::IO))?;
        match merged.join("bin").is_dir() {
            true => Ok(()),
            false => Err(StepError::new("read the layer", Errno::NOENT)),
        }
    })
}

/// Creates a disk image as `disk_mib` does, and mounts it. Needs root.
///
/// # Errors
/// The failed step.
pub fn disk_image(directory: &ProbeDirectory) -> Result<(), StepError> {
    let place = directory.0.join("disk");
    in_child(libc::CLONE_NEWNS as u64, || {
        autoreap_children();
        let templates = DiskTemplates::default();
        disk::create_image(&place, DISK_MIB, &templates).map_err(at_step("create a disk image"))?;
        disk::mount(&place).map_err(at_step("mount a disk image")).map(drop)
    })
}
