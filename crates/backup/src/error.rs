//! Why a backup cannot be written, verified or restored.

use isolet_store::FORMAT;
use std::io;
use std::path::{Path, PathBuf};

/// Why a backup cannot be written, verified or restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path that the error is about.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A file that is to be copied cannot be read.
    #[error("{}: {source}", .root.display())]
    Source {
        /// The directory that is copied. The source names the file.
        root: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The records cannot be read or written.
    #[error(transparent)]
    Store(#[from] isolet_store::Error),
    /// There is not enough space.
    #[error(
        "{} has {free_mib} MiB free, but up to {needed_mib} MiB are needed; free space or use another disk",
        .path.display()
    )]
    Space {
        /// The directory that lacks space.
        path: PathBuf,
        /// Space that is free, in MiB.
        free_mib: u64,
        /// Space that is needed, in MiB.
        needed_mib: u64,
    },
    /// The target of a backup or a restore exists.
    #[error("{} is not empty; choose a path that does not exist", .0.display())]
    NotEmpty(PathBuf),
    /// Another process uses the target.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The directory is not a complete backup.
    #[error("{} is not a complete backup: {reason}", .path.display())]
    NoBackup {
        /// The directory that is in the way.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// The backup has another format.
    #[error(
        "{} has format {found}, and this isolet uses format {FORMAT}; restore it with the version that wrote it",
        .backup.display()
    )]
    OtherFormat {
        /// The backup.
        backup: PathBuf,
        /// Its format.
        found: u64,
    },
    /// A version that wrote no format made the backup.
    #[error(
        "{} was made by an earlier version of isolet, which this version cannot read; restore it with that version",
        .0.display()
    )]
    EarlierVersion(PathBuf),
    /// A file of the backup differs from the manifest.
    #[error("{path} differs from the manifest ({reason}): the backup is damaged")]
    Damaged {
        /// The file, below the backup.
        path: String,
        /// How it differs from a backup.
        reason: String,
    },
    /// An archive contains what this version does not write.
    #[error("{path} is refused: {reason}")]
    Refused {
        /// The file, below the backup.
        path: String,
        /// What the archive contains.
        reason: String,
    },
    /// A sandbox does not stand still.
    #[error("{0}")]
    Hold(String),
    /// The connection to the server is lost.
    #[error("the server ended the backup: {0}")]
    Server(String),
    /// The passphrase is wrong, or the secrets are damaged.
    #[error("the secrets cannot be decrypted: {0}")]
    Secrets(String),
}

impl Error {
    /// Whether a file changed while it was read.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Source { source, .. } if source.kind() == io::ErrorKind::ResourceBusy)
    }

    /// Whether one sandbox or its files are the cause. The target can receive others.
    pub(crate) fn is_of_source(&self) -> bool {
        matches!(self, Self::Source { .. } | Self::Refused { .. } | Self::Hold(_))
    }
}

/// Adds a path to the errors of the kernel.
pub(crate) fn at<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Error {
    let path = path.to_owned();
    |source| Error::Io { path, source: source.into() }
}
