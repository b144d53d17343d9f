//! The first content of a workspace: copied from the image into the directory or the disk of a
//! sandbox that was never started.

use crate::live::orphans;
use crate::live::snapshots::{CopyGuard, SpaceFloor};
use isolet_storage::{CopyError, CopyMethod, copy_tree};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a disk may stay attached after the launcher or this copy has written to it.
const DETACH_WAIT: Duration = Duration::from_secs(20);
/// Names of files with several names while the workspace is copied.
const LINKS: &str = "links";

/// What is copied, and where to.
#[derive(Debug)]
pub(crate) struct WorkspaceCopy {
    /// The directory of all images.
    pub(crate) images: PathBuf,
    /// The path of the workspace in a layer, below that directory.
    pub(crate) workspace: String,
    /// The directory of the sandbox.
    pub(crate) sandbox: PathBuf,
    /// Whether the files are on a disk of their own.
    pub(crate) has_disk: bool,
    /// How files are copied within the data directory.
    pub(crate) method: CopyMethod,
    pub(crate) floor: SpaceFloor,
}

impl WorkspaceCopy {
    /// Copies the workspace. The directory is marked as unclaimed, so that it is removed if no record
    /// names it. Blocks.
    pub(crate) fn run(&self) -> Result<(), CopyError> {
        let at = |errno| CopyError::File { path: "workspace".into(), errno };
        let io = |error: std::io::Error| at(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        orphans::mark(&self.sandbox).map_err(io)?;
        if !self.has_disk {
            return self.copy(&self.sandbox, self.method);
        }
        if !isolet_jail::wait_detached(&self.sandbox, DETACH_WAIT) {
            return Err(at(Errno::BUSY));
        }
        let disk = isolet_jail::mount_disk(&self.sandbox).map_err(at)?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", disk.as_raw_fd()));
        self.copy(&root, CopyMethod::Full)?;
        // The descriptor of a mount only names it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::openat(&disk, c".", flags, Mode::empty()).map_err(at)?;
        rustix::fs::syncfs(&open).map_err(at)?;
        drop((open, disk));
        // The launcher mounts it next, and waits for a moment only.
        if isolet_jail::wait_detached(&self.sandbox, DETACH_WAIT) {
            Ok(())
        } else {
            Err(at(Errno::BUSY))
        }
    }

    /// Opens the workspace of the image without following links.
    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let images = rustix::fs::open(&self.images, flags, Mode::empty())?;
        let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(images, self.workspace.as_str(), flags, Mode::empty(), stay)
    }

    fn copy(&self, files: &Path, method: CopyMethod) -> Result<(), CopyError> {
        let at = |errno| CopyError::File { path: "workspace".into(), errno };
        let workspace = files.join("workspace");
        let links = files.join(LINKS);
        rustix::fs::unlinkat(CWD, &workspace, AtFlags::REMOVEDIR).map_err(at)?;
        rustix::fs::mkdir(&links, Mode::from_raw_mode(0o700)).map_err(at)?;
        let mut guard = CopyGuard::new(&self.sandbox, self.floor, Vec::new());
        let mut check = |bytes: u64| guard.check(bytes);
        let opened = self.open().map_err(at)?;
        // The last part of this path is not the link of the descriptor, which would not be followed.
        let from = PathBuf::from(format!("/proc/self/fd/{}/.", opened.as_raw_fd()));
        copy_tree(method, &from, &workspace, &links, &mut check)?;
        isolet_sys::tree::remove(&links).map_err(at)
    }
}
