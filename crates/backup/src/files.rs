//! Files of a backup: hashed while they are written or read; and the space of disks.

use crate::error::{Error, at};
use crate::progress::Progress;
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Size of a buffer for file contents, in bytes.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;
const MIB: u64 = 1024 * 1024;

/// A new file, hashed while it is written.
pub(crate) struct HashedFile {
    file: File,
    hash: Sha256,
    bytes: u64,
}

/// The size and the hash of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digested {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl HashedFile {
    /// Creates a file with mode 0600.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path).map_err(at(path))?;
        Ok(Self { file, hash: Sha256::new(), bytes: 0 })
    }

    /// Waits until the file is on the disk.
    pub(crate) fn finish(self) -> io::Result<Digested> {
        self.file.sync_all()?;
        Ok(Digested { bytes: self.bytes, sha256: hex::encode(self.hash.finalize()) })
    }
}

impl Write for HashedFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.file.write(buffer)?;
        self.hash.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a file of a backup, which must not be a symbolic link.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = options.read(true).custom_flags(flags).open(path).map_err(at(path))?;
    if !file.metadata().map_err(at(path))?.is_file() {
        return Err(at(path)(io::Error::from(io::ErrorKind::InvalidInput)));
    }
    Ok(file)
}

/// Computes length and SHA-256 of a file.
pub(crate) fn digest(path: &Path, progress: &dyn Progress) -> Result<Digested, Error> {
    let mut file = open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut buffer).map_err(at(path))?;
        if count == 0 {
            return Ok(Digested { bytes, sha256: hex::encode(hash.finalize()) });
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
        progress.bytes(count as u64);
    }
}

/// Refuses to begin when a directory has less space than `needed` bytes.
pub(crate) fn check_space(directory: &Path, needed: u64) -> Result<(), Error> {
    let stat = rustix::fs::statvfs(directory).map_err(at(directory))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let path = directory.to_owned();
    Err(Error::Space { path, free_mib: free / MIB, needed_mib: needed.div_ceil(MIB) })
}

/// Waits until a directory is on the disk.
pub(crate) fn sync_directory(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(at(path))
}
