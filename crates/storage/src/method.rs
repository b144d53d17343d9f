//! How the file system of the data directory copies a file.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::path::Path;

/// How files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMethod {
    /// By reference: original and copy share their blocks until one of them changes.
    Reflink,
    /// In full. Holes stay holes.
    Full,
}

impl CopyMethod {
    /// Finds out what the file system of a directory can do, by copying a file there. The file is
    /// removed. Blocks.
    ///
    /// # Errors
    /// The kernel's error if no file can be written there.
    pub(crate) fn probe(directory: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let from = match rustix::fs::open(directory, flags, mode) {
            // The file system has no files without a name, so it is none of those with references.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => return Ok(Self::Full),
            from => from?,
        };
        // A file without data would be copied everywhere.
        rustix::io::write(&from, &[1; 4096])?;
        let to = rustix::fs::open(directory, flags, mode)?;
        match rustix::fs::ioctl_ficlone(&to, &from) {
            Ok(()) => Ok(Self::Reflink),
            Err(_) => Ok(Self::Full),
        }
    }

    /// The word for clients and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Reflink => "reflink",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for CopyMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
