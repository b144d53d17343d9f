//! The trees of a snapshot, opened for reading: in its directory, or on its disk.

use super::files::SnapshotFiles;
use crate::model::record::snapshot::SnapshotRecord;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The trees of a snapshot.
#[derive(Debug)]
pub(crate) struct OpenedTrees {
    /// The directories with the changes of the root, the top one first.
    pub(crate) root: Vec<OwnedFd>,
    /// The same of `/usr`.
    pub(crate) usr: Vec<OwnedFd>,
    pub(crate) workspace: Option<OwnedFd>,
}

impl SnapshotFiles {
    /// Opens the trees of a snapshot; `disk` is the root of its disk image, if it has one. Blocks.
    ///
    /// # Errors
    /// `ENODEV` without the root of a disk image that it has; the kernel's error.
    pub(crate) fn open_trees(
        &self,
        record: &SnapshotRecord,
        disk: Option<&OwnedFd>,
    ) -> Result<OpenedTrees, Errno> {
        let trees = self.trees(record);
        if trees.disk.is_some() {
            let disk = disk.ok_or(Errno::NODEV)?;
            // The launcher made these directories; tenants decide only what is below them.
            let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let open = |path: &str| rustix::fs::openat2(disk, path, DIRECTORY, Mode::empty(), how);
            return Ok(OpenedTrees {
                root: vec![open("root/upper")?],
                usr: vec![open("usr/upper")?],
                workspace: Some(open("workspace")?),
            });
        }
        let open = |path: &PathBuf| rustix::fs::open(path, DIRECTORY, Mode::empty());
        let all = |paths: &[PathBuf]| paths.iter().map(open).collect::<Result<_, Errno>>();
        Ok(OpenedTrees {
            root: all(&trees.root)?,
            usr: all(&trees.usr)?,
            workspace: trees.workspace.as_ref().map(open).transpose()?,
        })
    }
}
