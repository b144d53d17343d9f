//! The files of a node, how they are read with a limit, and how a file is replaced.

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The longest accepted file, in bytes: a list of 100,000 revoked certificates as PEM.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How long before its end the certificate of a node is a warning, in seconds.
pub(crate) const EXPIRY_WARNING_S: i64 = 14 * 86_400;

/// The files by which a node trusts other nodes and they trust it, all as PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerFiles {
    /// Certificates of the trusted CAs: one, or two while the CA is rotated.
    pub ca: PathBuf,
    /// The certificate of this node.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The revocation lists of the trusted CAs.
    pub revoked: PathBuf,
}

impl PeerFiles {
    /// The files as `isolet cluster issue` names them in a directory.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            ca: directory.join("ca.pem"),
            certificate: directory.join("node.pem"),
            key: directory.join("node-key.pem"),
            revoked: directory.join("revoked.pem"),
        }
    }

    /// The paths of all four files.
    pub(crate) fn all(&self) -> [&Path; 4] {
        [&self.ca, &self.certificate, &self.key, &self.revoked]
    }
}

/// Reads a file of limited size. Blocks.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // A named pipe would block until something writes to it.
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidData, "not a regular file"));
    }
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        let reason = format!("longer than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    Ok(content)
}

/// Replaces a file in one step, readable by its owner only. After that, the content is on the disk.
/// Blocks.
///
/// # Errors
/// The file cannot be written. It has its former content then.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let mut file = file?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    sync_directory(path.parent().unwrap_or(Path::new("/")))
}

/// Makes renames and removals in a directory durable. Blocks.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_replaced_file_is_private_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        std::fs::write(folder.path().join("key.pem.new"), "of a killed command").unwrap();
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Promises: T21.
    #[test]
    fn a_named_pipe_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
