//! The files of a snapshot for a push, and a place for those of a pull.

use super::files::{DISK, SHELLS, STAGING, TREES, create_directory, create_parent, create_private};
use super::stage::with_links;
use crate::live::orphans;
use crate::live::snapshots::{CopyGuard, SnapshotFiles, SpaceFloor};
use crate::model::ids::SessionId;
use crate::model::record::snapshot::SnapshotRecord;
use isolet_repository::{OwnerIds, Root, RootKind, Source};
use isolet_storage::{CopyError, merge_layers};
use isolet_wire::response::STATE_BYTES_MAX;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, Read as _};
use std::path::PathBuf;

impl SnapshotFiles {
    /// The trees and files of a snapshot, for a push.
    pub(crate) fn sources(&self, name: &str, ids: OwnerIds) -> Vec<Source> {
        let directory = self.directory(name);
        let source = |name: &str, kind, ids| Source {
            root: Root { name: name.to_owned(), kind },
            path: directory.join(name),
            ids,
        };
        let mut sources = match directory.join(DISK).is_file() {
            true => vec![source(DISK, RootKind::File, OwnerIds::Server)],
            false => TREES.iter().map(|tree| source(tree, RootKind::Tree, ids)).collect(),
        };
        if directory.join(SHELLS).is_dir() {
            sources.push(source(SHELLS, RootKind::Tree, OwnerIds::Server));
        }
        sources
    }

    /// The saved state of a session's shell; `None` if the snapshot has none. Blocks.
    ///
    /// # Errors
    /// The kernel's error, also for a state that is too large.
    pub(crate) fn shell_state(&self, name: &str, id: &SessionId) -> io::Result<Option<Vec<u8>>> {
        let path = self.directory(name).join(SHELLS).join(id.as_str());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => std::fs::File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut state = Vec::new();
        file.take(STATE_BYTES_MAX as u64 + 1).read_to_end(&mut state)?;
        if state.len() > STATE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(state))
    }

    /// Merges the layers of a snapshot into a directory of the staging area that has the name `merged`,
    /// and lets `sources` lie there. The caller discards the directory. Blocks.
    pub(crate) fn merge_for_push(
        &self,
        record: &SnapshotRecord,
        merged: &str,
        floor: SpaceFloor,
        sources: &mut [Source],
    ) -> Result<(), CopyError> {
        let staged = self.create_staged(merged)?;
        let trees = self.trees(record);
        let mut guard = self.guard(floor);
        let mut check = |bytes: u64| guard.check(bytes);
        for source in sources {
            let layers = match source.root.name.as_str() {
                "root/upper" => &trees.root,
                "usr/upper" => &trees.layered_usr,
                _ => continue,
            };
            let layers: Vec<_> = layers.iter().map(PathBuf::as_path).collect();
            let to = staged.join(&source.root.name);
            create_parent(&to).map_err(|error| CopyError::io("", &error))?;
            let method = self.backend().copies();
            with_links(&to, |links| merge_layers(method, &layers, &to, links, &mut check))?;
            source.path = to;
        }
        Ok(())
    }

    /// Whether the files of a snapshot consist of such trees and files.
    pub(crate) fn accepts(roots: &[Root]) -> bool {
        let names: Vec<(&str, RootKind)> =
            roots.iter().map(|root| (root.name.as_str(), root.kind)).collect();
        let files = match names.strip_suffix(&[(SHELLS, RootKind::Tree)]) {
            Some(files) => files,
            None => &names,
        };
        files == [(DISK, RootKind::File)] || files == TREES.map(|tree| (tree, RootKind::Tree))
    }

    /// Creates a directory in the staging area, for a pull, and what checks the disk while it is
    /// filled. Checks that `bytes` fit on the disk. Blocks.
    pub(crate) fn begin(
        &self,
        name: &str,
        bytes: u64,
        floor: SpaceFloor,
    ) -> Result<(PathBuf, CopyGuard), CopyError> {
        let staging = self.directory(STAGING);
        let mut guard = self.guard(floor);
        guard.check(bytes)?;
        let staged = staging.join(name);
        create_private(&staging)
            .and_then(|()| create_directory(&staged))
            .and_then(|()| orphans::mark(&staged))
            .map_err(|error| CopyError::io("", &error))?;
        Ok((staged, self.guard(floor)))
    }
}
