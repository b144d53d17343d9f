//! Directories under construction, below `staging`, which is emptied at every start.

use super::clear;
use crate::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Staging {
    directory: PathBuf,
    next: AtomicU64,
}

/// A directory in `staging`; removed unless it was moved.
pub(crate) struct StagedDirectory(pub(crate) PathBuf);

impl Drop for StagedDirectory {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove a staging directory");
        }
    }
}

impl Staging {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, next: AtomicU64::new(0) }
    }

    pub(crate) fn stage(&self) -> Result<StagedDirectory, Error> {
        let staged = self.reserve();
        fs::create_dir(&staged.0)?;
        Ok(staged)
    }

    /// Returns an unused path in `staging`, without creating it.
    pub(crate) fn reserve(&self) -> StagedDirectory {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        StagedDirectory(self.directory.join(number.to_string()))
    }
}
