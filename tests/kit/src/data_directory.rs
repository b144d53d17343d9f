//! The directories of tests: what a server shares with others in its data directory, and what it
//! leaves behind.

use crate::{process, traces};
use std::fs::{self, File};
use std::path::Path;
use tempfile::TempDir;

/// Creates a directory of a test below `TMPDIR`. Its name carries the pid of the test, by which
/// `tests/runner/cleanup.py` finds the directories of tests that were killed; `kind` must be known there.
///
/// # Panics
/// When the directory cannot be created.
#[must_use]
pub fn test_directory(kind: &str) -> TempDir {
    let prefix = format!("isolet-{kind}-{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir().expect("a directory below TMPDIR")
}

/// Shares the base image beside the programs with a data directory, because building it takes
/// seconds on a slow disk. The first caller holds the returned lock until it has built the image.
///
/// # Panics
/// When the link cannot be created.
pub fn share_image(programs: &Path, data: &Path) -> Option<File> {
    let images = programs.join("image");
    fs::create_dir_all(&images).expect("a directory beside the programs");
    std::os::unix::fs::symlink(&images, data.join("image")).expect("a link in it");
    let made = || {
        fs::read_dir(&images).is_ok_and(|all| {
            all.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("host-"))
        })
    };
    if made() {
        return None;
    }
    let lock = File::create(programs.join("image.lock")).expect("a lock beside the programs");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
        .expect("the lock is acquired");
    (!made()).then_some(lock)
}

/// Ends what a server that is gone has left on the machine, and removes its data directory.
pub fn erase(data: &Path) {
    end_all(data);
    // Trees may be too deep for the standard library.
    let _ = isolet_sys::tree::remove(data);
}

/// Ends every process of a data directory.
pub(crate) fn end_all(data: &Path) {
    helpers(data).into_iter().for_each(process::kill);
    traces::erase(data);
}

/// The pids of processes that have this data directory in their arguments.
pub(crate) fn helpers(data: &Path) -> Vec<i32> {
    let text = data.display().to_string();
    process::all().into_iter().filter(|pid| process::arguments(*pid).contains(&text)).collect()
}
