//! The directory of a sandbox: created with its subdirectories, or, when the sandbox wakes, cleared
//! of the files that its earlier processes left.

use super::file_ids::FileIds;
use crate::child::{StepError, at_step};
use crate::config::{AGENT_UID, GIVEN, SCOPES};
use crate::host::Host;
use crate::kernel::mount::clone_tree;
use crate::{disk, orphan};
use isolet_wire::launcher::Spec;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The directories that hold a sandbox's files, below its directory or on its disk.
const PLACES: [&str; 7] =
    ["root", "usr", "root/upper", "root/work", "usr/upper", "usr/work", "workspace"];

/// A sandbox's directory. Dropping it removes the directory, unless [`Directory::keep`] was called
/// or the directory existed before.
pub(super) struct Directory<'a> {
    host: &'a Host,
    spec: &'a Spec,
    fd: OwnedFd,
    ids: FileIds,
    /// The detached file system that holds the files, if the sandbox has a disk of its own.
    disk: Option<OwnedFd>,
    remove_on_drop: bool,
}

impl<'a> Directory<'a> {
    pub(super) fn create(host: &'a Host, spec: &'a Spec) -> Result<Self, StepError> {
        let ids = FileIds::of(&host.config, spec).map_err(at_step("user ids"))?;
        let path = host.config.sandbox_dir(&spec.name);
        if !spec.directory_exists {
            rustix::fs::mkdir(&path, Mode::from_raw_mode(0o711)).map_err(at_step("directory"))?;
        }
        let fd = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(at_step("directory"))?;
        match rustix::fs::mkdirat(&fd, GIVEN, Mode::from_raw_mode(0o755)) {
            // Created before the sandbox slept.
            Err(Errno::EXIST) if spec.directory_exists => {}
            created => created.map_err(at_step("directory"))?,
        }
        let mut directory =
            Self { host, spec, fd, ids, disk: None, remove_on_drop: !spec.directory_exists };
        if spec.directory_exists {
            directory.clear().map_err(at_step("directory"))?;
        }
        if spec.limits.disk_mib > 0 {
            let templates = &host.disk_templates;
            let formatted = match spec.directory_exists {
                true => None,
                false => disk::create_image(&path, spec.limits.disk_mib, templates)
                    .map_err(at_step("disk image"))?,
            };
            directory.disk = Some(disk::mount(&path).map_err(at_step("disk"))?);
            if let Some(template) = formatted {
                templates.remember(template);
            }
        }
        if !spec.directory_exists {
            directory.create_places().map_err(at_step("directories"))?;
        }
        Ok(directory)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A detached mount of the directory or disk that holds the sandbox's files, which shows them
    /// under the ids of its slot.
    pub(super) fn take_files(&mut self) -> Result<OwnedFd, StepError> {
        let files = match self.disk.take() {
            Some(disk) => disk,
            None => clone_tree(self.fd(), Path::new(""), false).map_err(at_step("files"))?,
        };
        self.ids.map(files.as_fd())?;
        Ok(files)
    }

    /// Creates a file that only the server reads.
    pub(super) fn write(&self, name: &str, content: &str) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))?;
        rustix::io::write(file, content.as_bytes()).map(drop)
    }

    fn create_places(&self) -> Result<(), Errno> {
        let files = self.disk.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
        let chown = |name: &str, uid: u32, gid: u32| {
            let uid = Uid::from_raw(self.ids.on_disk(uid));
            let gid = Gid::from_raw(self.ids.on_disk(gid));
            rustix::fs::chownat(files, name, Some(uid), Some(gid), AtFlags::empty())
        };
        for name in PLACES {
            self.create_place(files, name)?;
            if name.contains('/') {
                chown(name, 0, 0)?;
            }
        }
        // The workspace belongs to the user of the image.
        let (uid, gid) = self.spec.root.as_ref().map_or((0, 0), |root| (root.uid, root.gid));
        chown("workspace", uid, gid)?;
        if self.disk.is_some() {
            rustix::fs::mkdirat(files, "spare", Mode::from_raw_mode(0o700))?;
            chown("spare", AGENT_UID, AGENT_UID)?;
        }
        Ok(())
    }

    /// Creates a directory for files. On btrfs, those at the top are subvolumes, so that a snapshot
    /// copies each as a whole. Each overlay has both its directories in one of them, because files
    /// cannot be moved between subvolumes.
    fn create_place(&self, files: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(0o755);
        let is_top = self.disk.is_none() && !name.contains('/');
        if is_top && isolet_sys::btrfs::create(files, name.as_bytes()).is_ok() {
            return rustix::fs::chmodat(files, name, mode, AtFlags::empty());
        }
        rustix::fs::mkdirat(files, name, mode)
    }

    /// Removes what the sandbox's earlier processes left beside its files.
    fn clear(&self) -> Result<(), Errno> {
        // Their agents ended with the sandbox; what they granted is in the sessions' records.
        let scopes = self.host.config.sandbox_dir(&self.spec.name).join(SCOPES);
        isolet_sys::tree::remove(&scopes)?;
        for name in ["agent.sock", "cgroups", orphan::FILE] {
            match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Leaves the directory in place.
    pub(super) fn keep(mut self) {
        self.remove_on_drop = false;
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        if self.remove_on_drop {
            let _ = isolet_sys::tree::remove(&self.host.config.sandbox_dir(&self.spec.name));
        }
    }
}
