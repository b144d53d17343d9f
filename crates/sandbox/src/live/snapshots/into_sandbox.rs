//! How the files of a snapshot become those of a new sandbox.

use super::files::{DISK, SHELLS, TREES, create_directory, create_parent, sync_all};
use super::layers::PARTS;
use super::subvolumes;
use crate::live::orphans;
use crate::live::snapshots::{SnapshotFiles, SpaceFloor};
use crate::model::record::RecordBody;
use isolet_storage::{Copied, CopyError, create_directory_like};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid};
use rustix::io::Errno;
use std::path::Path;
use std::{fs, io};

/// Directories that overlays need beside them.
const WORK: [&str; 2] = ["root/work", "usr/work"];

impl SnapshotFiles {
    /// Copies the files of a snapshot into the directory of a new sandbox, which must not exist. The
    /// directory is marked as unclaimed, so that it is removed if no record names it. The files in
    /// layers are not copied: the record of the sandbox names them. Blocks.
    pub(crate) fn restore(
        &self,
        name: &str,
        settings: &RecordBody,
        sandbox: &Path,
        floor: SpaceFloor,
    ) -> Result<Copied, CopyError> {
        let marked = create_directory(sandbox).and_then(|()| orphans::mark(sandbox));
        marked.map_err(|error| CopyError::io("", &error))?;
        let mut guard = self.guard(floor);
        let from = self.directory(name);
        let restored = self.copy(&from, sandbox, &TREES, &mut |bytes| guard.check(bytes), false)?;
        self.create_uppers(settings, sandbox)?;
        prepare_work(sandbox).map_err(|errno| CopyError::at(b"work", errno))?;
        Ok(restored.copied)
    }

    /// As [`SnapshotFiles::restore`], but moves the files where that is possible. The snapshot must not
    /// be used any more.
    pub(crate) fn give(
        &self,
        name: &str,
        settings: &RecordBody,
        sandbox: &Path,
        floor: SpaceFloor,
    ) -> Result<(), CopyError> {
        let from = self.directory(name);
        if subvolumes::are_in(&from) {
            // They are read-only, and copied at once.
            return self.restore(name, settings, sandbox, floor).map(|_| ());
        }
        let at = |error: io::Error| CopyError::io("", &error);
        create_directory(sandbox).and_then(|()| orphans::mark(sandbox)).map_err(at)?;
        for part in [DISK, "root", "usr", "workspace", SHELLS] {
            match fs::rename(from.join(part), sandbox.join(part)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved.map_err(at)?,
            }
        }
        self.create_uppers(settings, sandbox)?;
        prepare_work(sandbox).map_err(|errno| CopyError::at(b"work", errno))
    }

    /// Writes files that [`SnapshotFiles::restore`] has copied to the disk. Blocks.
    pub(crate) fn write_to_disk(restored: &Path) -> io::Result<()> {
        sync_all(restored)
    }

    /// Creates the empty directories for the changes of a sandbox over layers.
    fn create_uppers(&self, settings: &RecordBody, sandbox: &Path) -> Result<(), CopyError> {
        for part in PARTS {
            let upper = sandbox.join(part).join("upper");
            let Some(top) = settings.layers.iter().next().filter(|_| !upper.is_dir()) else {
                continue;
            };
            create_parent(&upper).map_err(|error| CopyError::io("", &error))?;
            create_directory_like(&self.layers.part(top, part), &upper)?;
        }
        Ok(())
    }
}

/// Creates the directories that overlays need, with the owner of the directories beside them.
fn prepare_work(sandbox: &Path) -> Result<(), Errno> {
    if sandbox.join(DISK).is_file() {
        return Ok(());
    }
    for work in WORK {
        let work = sandbox.join(work);
        let upper = rustix::fs::stat(work.with_file_name("upper"))?;
        // A subvolume was copied with the directory of an overlay that was mounted.
        isolet_sys::tree::remove(&work)?;
        rustix::fs::mkdir(&work, Mode::from_raw_mode(0o755))?;
        let uid = Some(Uid::from_raw(upper.st_uid));
        let gid = Some(Gid::from_raw(upper.st_gid));
        rustix::fs::chownat(CWD, &work, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}
