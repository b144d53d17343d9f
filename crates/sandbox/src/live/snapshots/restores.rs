//! Restoring a snapshot in place: its files replace those of a sandbox.
//!
//! The files are copied to `DATA/restores/TOKEN` and written to the disk. Then one transaction
//! records the settings and sessions of the snapshot with the token. From there on the restore is
//! finished, by this server or the next one: what runs is ended, both directories are exchanged by
//! one rename, and the old one goes to the trash. A directory that no record names is removed by
//! the next start, because its restore was not recorded.
//!
//! The copied directory holds its own token, so that a later attempt knows whether the directories
//! were exchanged.

use crate::live::orphans;
use crate::live::snapshots::SnapshotFiles;
use crate::model::ids::random;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The directory of copied files, below the data directory.
const DIRECTORY: &str = "restores";
/// The file in a copied directory that holds its token.
const MARKER: &str = "restored";
/// What stays with the sandbox: recordings of terminals and records of background processes.
const STAYS: [&str; 2] = ["recordings", "processes"];

/// The directories of restores in place.
#[derive(Debug, Clone)]
pub(crate) struct Restores {
    directory: PathBuf,
    trash: PathBuf,
}

impl Restores {
    pub(crate) fn new(data: &Path) -> Self {
        Self { directory: data.join(DIRECTORY), trash: data.join("trash") }
    }

    /// Where the files of a restore are copied to.
    pub(crate) fn path(&self, token: &str) -> PathBuf {
        self.directory.join(token)
    }

    /// Creates the directory of all restores. Blocks.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)
    }

    /// Marks copied files and writes them to the disk. Blocks.
    pub(crate) fn complete(&self, token: &str) -> io::Result<()> {
        let copied = self.path(token);
        orphans::unmark(&copied)?;
        let mut open = fs::OpenOptions::new();
        let mut marker = open.write(true).create_new(true).mode(0o600).open(copied.join(MARKER))?;
        marker.write_all(token.as_bytes())?;
        marker.sync_all()?;
        SnapshotFiles::write_to_disk(&copied)?;
        sync(&self.directory)
    }

    /// Exchanges the directory of a sandbox with the copied one. Does nothing if that is done
    /// already. Requires that nothing of the sandbox runs. Blocks.
    ///
    /// # Errors
    /// `NotFound` if the copied directory is missing, otherwise the kernel's.
    pub(crate) fn exchange(&self, token: &str, sandbox: &Path) -> io::Result<()> {
        if is_restored(sandbox, token)? {
            return Ok(());
        }
        let copied = self.path(token);
        if !is_restored(&copied, token)? {
            return Err(ErrorKind::NotFound.into());
        }
        match renameat_with(CWD, &copied, CWD, sandbox, RenameFlags::EXCHANGE) {
            // An ephemeral sandbox has no files while it sleeps.
            Err(Errno::NOENT) => fs::rename(&copied, sandbox)?,
            exchanged => exchanged?,
        }
        sync(&self.directory)?;
        sandbox.parent().map_or(Ok(()), sync)
    }

    /// Moves what stays with the sandbox out of its old directory, and that to the trash. Can be
    /// repeated. Blocks.
    pub(crate) fn discard_old(&self, token: &str, sandbox: &Path) -> io::Result<()> {
        let old = self.path(token);
        for name in STAYS {
            match fs::rename(old.join(name), sandbox.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        sync(sandbox)?;
        self.discard(token)
    }

    /// Moves a directory to the trash. No error if there is none. Blocks.
    pub(crate) fn discard(&self, token: &str) -> io::Result<()> {
        // A name in the trash is never used twice.
        let to = self.trash.join(format!("restore-{}", random()));
        match fs::rename(self.path(token), to) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(()) => sync(&self.directory),
            failed => failed,
        }
    }

    /// Discards all directories but those that records name. Blocks.
    pub(crate) fn sweep(&self, tokens: &HashSet<String>) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !tokens.contains(&name) {
                self.discard(&name)?;
            }
        }
        Ok(())
    }
}

/// Whether a directory holds the files of this restore.
fn is_restored(directory: &Path, token: &str) -> io::Result<bool> {
    match fs::read(directory.join(MARKER)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        marker => Ok(marker? == token.as_bytes()),
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data directory with a sandbox and a copied directory, each with a file.
    fn prepared(data: &Path) -> (Restores, PathBuf) {
        let sandbox = data.join("sandboxes/one");
        for path in ["sandboxes/one/recordings", "sandboxes/one/workspace", "trash"] {
            fs::create_dir_all(data.join(path)).unwrap();
        }
        fs::write(sandbox.join("workspace/f"), "old").unwrap();
        fs::write(sandbox.join("recordings/r.cast"), "kept").unwrap();
        let restores = Restores::new(data);
        restores.prepare().unwrap();
        let copied = restores.path("token");
        fs::create_dir_all(copied.join("workspace")).unwrap();
        fs::write(copied.join("workspace/f"), "new").unwrap();
        restores.complete("token").unwrap();
        (restores, sandbox)
    }

    /// Promises: SN7.
    #[test]
    fn each_step_of_a_restore_can_be_repeated() {
        let data = tempfile::tempdir().unwrap();
        let (restores, sandbox) = prepared(data.path());
        let file = || fs::read_to_string(sandbox.join("workspace/f")).unwrap();
        for _ in 0..2 {
            restores.exchange("token", &sandbox).unwrap();
            assert_eq!(file(), "new");
        }
        for _ in 0..2 {
            restores.discard_old("token", &sandbox).unwrap();
            restores.exchange("token", &sandbox).unwrap();
        }
        assert_eq!(file(), "new");
        assert_eq!(fs::read_to_string(sandbox.join("recordings/r.cast")).unwrap(), "kept");
        assert_eq!(fs::read_dir(data.path().join("trash")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(data.path().join(DIRECTORY)).unwrap().count(), 0);
    }

    #[test]
    fn files_that_are_not_complete_replace_nothing() {
        let data = tempfile::tempdir().unwrap();
        let (restores, sandbox) = prepared(data.path());
        let error = restores.exchange("other", &sandbox).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        fs::remove_file(restores.path("token").join(MARKER)).unwrap();
        let error = restores.exchange("token", &sandbox).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(fs::read_to_string(sandbox.join("workspace/f")).unwrap(), "old");
    }

    #[test]
    fn what_no_record_names_is_removed() {
        let data = tempfile::tempdir().unwrap();
        let (restores, sandbox) = prepared(data.path());
        restores.sweep(&HashSet::from(["token".to_owned()])).unwrap();
        assert!(restores.path("token").is_dir());
        restores.sweep(&HashSet::new()).unwrap();
        assert!(!restores.path("token").is_dir());
        assert_eq!(fs::read_to_string(sandbox.join("workspace/f")).unwrap(), "old");
    }

    #[test]
    fn an_ephemeral_sandbox_without_files_gets_those_of_the_snapshot() {
        let data = tempfile::tempdir().unwrap();
        let (restores, sandbox) = prepared(data.path());
        isolet_sys::tree::remove(&sandbox).unwrap();
        restores.exchange("token", &sandbox).unwrap();
        restores.discard_old("token", &sandbox).unwrap();
        assert_eq!(fs::read_to_string(sandbox.join("workspace/f")).unwrap(), "new");
    }
}
