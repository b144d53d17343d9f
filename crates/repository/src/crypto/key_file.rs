//! The file with the repository key, which every server of the operator has.

use crate::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What the key's line begins with.
const PREFIX: &str = "isolet-repository-key-1:";
/// Maximum size of the file, in bytes: the key and some comments.
const FILE_BYTES_MAX: u64 = 4096;
/// Length of the key, in bytes.
pub(crate) const KEY_BYTES: usize = 32;

/// The repository key. Its text is never shown.
#[derive(Clone)]
pub struct KeyFile {
    pub(crate) key: [u8; KEY_BYTES],
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFile(…)")
    }
}

impl KeyFile {
    /// Reads a key file. Blocks.
    ///
    /// # Errors
    /// [`Error::KeyFile`], also when other users may read the file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |reason: String| Error::KeyFile { path: path.display().to_string(), reason };
        let file = File::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                failed("does not exist; create it with `isolet store init`, or copy that of the other servers".into())
            }
            _ => failed(error.to_string()),
        })?;
        let about = file.metadata().map_err(|error| failed(error.to_string()))?;
        if !about.is_file() {
            return Err(failed("is not a regular file".into()));
        }
        if about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o777;
            return Err(failed(format!("has mode {mode:04o}; run `chmod 600` on it")));
        }
        let own = rustix::process::geteuid().as_raw();
        if about.uid() != 0 && about.uid() != own {
            return Err(failed(format!("belongs to user {}; it must belong to root", about.uid())));
        }
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| failed(error.to_string()))?;
        let found = text.lines().find_map(|line| line.trim().strip_prefix(PREFIX));
        let mut key = [0; KEY_BYTES];
        match found.map(|digits| hex::decode_to_slice(digits, &mut key)) {
            Some(Ok(())) => Ok(Self { key }),
            _ => Err(failed("contains no repository key".into())),
        }
    }
}

/// Creates a file with a new key, which only its owner can read. Blocks.
///
/// # Errors
/// [`Error::KeyFile`], also when the file exists.
pub fn create_key_file(path: &Path) -> Result<KeyFile, Error> {
    let failed = |reason: String| Error::KeyFile { path: path.display().to_string(), reason };
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(Error::fault)?;
    let text = format!(
        "# Key of the store of snapshots. Every server that uses the store needs this file.\n\
         # Without it, the snapshots in the store cannot be read: keep a copy in a safe place.\n\
         {PREFIX}{}\n",
        hex::encode(key)
    );
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| failed(error.to_string()))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| failed(error.to_string()))?;
    Ok(KeyFile { key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_file_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let created = create_key_file(&path).unwrap();
        assert_eq!(KeyFile::read(&path).unwrap().key, created.key);
        assert!(create_key_file(&path).is_err(), "a key is never replaced");
        assert!(!format!("{created:?}").contains(&hex::encode(created.key)));
        set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let refused = KeyFile::read(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        std::fs::write(&path, "isolet-repository-key-1:12").unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(KeyFile::read(&path).is_err());
    }
}
