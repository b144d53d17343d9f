//! The trees of a snapshot, opened for reading: in its directory, or on its disk.

use super::files::SnapshotFiles;
use crate::model::record::snapshot::SnapshotRecord;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The trees of a snapshot. The mount of a disk ends with them.
#[derive(Debug)]
pub(crate) struct OpenedTrees {
    /// The directories with the changes of the root, the top one first.
    pub(crate) root: Vec<OwnedFd>,
    /// The same of `/usr`.
    pub(crate) usr: Vec<OwnedFd>,
    pub(crate) workspace: Option<OwnedFd>,
}

impl SnapshotFiles {
    /// Opens the trees of a snapshot. Blocks.
    pub(crate) fn open_trees(&self, record: &SnapshotRecord) -> io::Result<OpenedTrees> {
        let trees = self.trees(record);
        let Some(disk) = &trees.disk else {
            let open = |path: &PathBuf| Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?);
            let all = |paths: &[PathBuf]| paths.iter().map(open).collect::<io::Result<_>>();
            return Ok(OpenedTrees {
                root: all(&trees.root)?,
                usr: all(&trees.usr)?,
                workspace: trees.workspace.as_ref().map(open).transpose()?,
            });
        };
        let files = isolet_jail::mount_read_only(disk)?;
        // The launcher made these directories; tenants decide only what is below them.
        let open = |path: [&str; 2]| -> io::Result<OwnedFd> {
            let above = rustix::fs::openat(&files, path[0], DIRECTORY, Mode::empty())?;
            Ok(rustix::fs::openat(above, path[1], DIRECTORY, Mode::empty())?)
        };
        Ok(OpenedTrees {
            root: vec![open(["root", "upper"])?],
            usr: vec![open(["usr", "upper"])?],
            workspace: Some(open(["workspace", "."])?),
        })
    }
}
