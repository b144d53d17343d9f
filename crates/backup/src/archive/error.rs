//! Why an archive cannot be written.

use std::io;

/// Why an archive cannot be written. Only an error of the target concerns the whole backup.
#[derive(Debug)]
pub(crate) enum PackError {
    /// A file cannot be read.
    Source(io::Error),
    /// The archive cannot contain an entry, because no reader would accept it. Nothing of the entry
    /// was written.
    Unfit(&'static str),
    /// The archive cannot be written.
    Target(io::Error),
}

impl PackError {
    /// An error of a file that is read, without an error of the kernel.
    pub(crate) fn source(reason: impl Into<String>) -> Self {
        Self::Source(io::Error::other(reason.into()))
    }
}
