//! Sessions that the sandboxes of an image start with: one file for each image that has some, with
//! the name of its record. The content comes from this server or from an archive; this module only
//! bounds it and compares its digest.
//!
//! The file is written before the record and removed after it. A start removes the files without a
//! record.

use super::Store;
use super::image::Image;
use crate::disk;
use crate::error::Error;
use crate::reference::Digest;
use bytes::Bytes;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The directory of all files, below the image directory.
pub(super) const DIRECTORY: &str = "sessions";
/// Maximum size of the sessions of an image with the states of their shells, in bytes. Creating a
/// sandbox reads all of it into memory.
pub const SESSIONS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Checks the size of the sessions of an image.
///
/// # Errors
/// [`Error::TooLarge`].
pub(crate) fn check_size(content: &[u8]) -> Result<(), Error> {
    if content.len() <= SESSIONS_BYTES_MAX {
        return Ok(());
    }
    Err(too_large())
}

/// The error of sessions that are larger than an image may have.
#[must_use]
pub fn too_large() -> Error {
    let limit = format!("{} MiB", SESSIONS_BYTES_MAX >> 20);
    Error::large("sessions of an image and the saved states of their shells", limit)
}

/// Removes what has no record. Blocks.
pub(super) fn clear(root: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(root.join(DIRECTORY))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !disk::present(&root.join("known").join(format!("{name}.json"))) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl Store {
    fn sessions_path(&self, digest: &str) -> PathBuf {
        self.root.join(DIRECTORY).join(digest.trim_start_matches("sha256:"))
    }

    /// Writes the sessions of an image whose record is not written yet.
    pub(super) fn write_sessions(&self, digest: &str, content: &[u8]) -> Result<(), Error> {
        disk::write(&self.sessions_path(digest), content)
    }

    /// Removes the sessions of an image that has no record. What fails is removed at the next start.
    pub(super) fn remove_sessions(&self, digest: &str) {
        match fs::remove_file(self.sessions_path(digest)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(image = digest, %error, "sessions of a removed image remain");
            }
            _ => {}
        }
    }

    /// The sessions of an image that is pinned; `None` if it has none. Blocks.
    ///
    /// # Errors
    /// [`Error::Bad`] if they are missing or changed.
    pub(crate) fn sessions(&self, image: &Image) -> Result<Option<Bytes>, Error> {
        let Some(saved) = &image.sessions else { return Ok(None) };
        let damaged = |problem: String| {
            Error::bad(format!(
                "its sessions on this server's disk are damaged ({problem}): import the image or make it again"
            ))
        };
        let file = File::open(self.sessions_path(&image.digest));
        let file = file.map_err(|error| damaged(error.to_string()))?;
        let mut content = Vec::new();
        file.take(SESSIONS_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
        let found = Digest::of(&content).to_string();
        if found != saved.digest {
            return Err(damaged(format!("digest {found} instead of {}", saved.digest)));
        }
        Ok(Some(content.into()))
    }
}
