//! Why a command on the directory of a CA failed.

use crate::certificates::rotation::RotationError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a command on the directory of a CA failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// `init` on a directory that has a CA.
    #[error("{0} already has a certificate authority; rotate it with `isolet cluster rotate-ca`")]
    Exists(PathBuf),
    /// The directory has no CA.
    #[error("{0} has no certificate authority; create one with `isolet cluster init --dir {0}`")]
    Missing(PathBuf),
    /// Another command holds the lock.
    #[error("another command uses {0}; retry when it has ended")]
    Busy(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("{path} is unusable: {reason}; restore it from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Users other than the owner may read the key of the CA.
    #[error(
        "{path} has mode {mode:04o}; run `chmod 600 {path}`, and rotate the CA if others had access"
    )]
    KeyOpen {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// No certificate matches what the operator named.
    #[error(
        "no certificate of a node {0:?} and none with this serial number; see `isolet cluster ls`"
    )]
    Unknown(String),
    /// The directory for the files of a node has those of another one.
    #[error("{directory} contains the certificate of {found}; use another directory for {node}")]
    OtherNode {
        /// The directory.
        directory: PathBuf,
        /// What its certificate says.
        found: String,
        /// The node whose files should be written.
        node: String,
    },
    /// The CA has expired.
    #[error(
        "the certificate authority {0:?} has expired; create another one with `isolet cluster init` in a new directory"
    )]
    AuthorityExpired(String),
    /// A limit of the index.
    #[error(
        "the index has {0} certificates that have not expired, the maximum; issue fewer for a longer time"
    )]
    TooMany(usize),
    /// A step of a rotation at the wrong time.
    #[error(transparent)]
    Rotation(#[from] RotationError),
    /// A certificate or a list cannot be signed.
    #[error("cannot sign: {0}")]
    Sign(#[from] rcgen::Error),
    /// The kernel gives no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

impl CertificateError {
    /// For `map_err` of an operation on a file.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
