//! Why something could not be exchanged with the other nodes.

use isolet_cluster::etcd::EtcdError;
use isolet_peer::tls::LoadError;
use std::io;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Why the records of this node and those of the fleet could not be made equal. Contains no digest
/// and no secret.
#[derive(Debug, thiserror::Error)]
pub enum ReplicationError {
    /// etcd did not answer, or refused.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The records of this node.
    #[error("the records of this node: {0}")]
    Store(#[from] isolet_store::Error),
    /// The revocation lists of this node.
    #[error("the revocation lists of this node: {0}")]
    Lists(#[from] LoadError),
    /// A file of the data directory.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A value is larger than nodes accept.
    #[error("the value of {what} has {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// What the value describes.
        what: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Other nodes kept changing the same key.
    #[error("{what} was changed by other nodes {attempts} times while this node tried to write it")]
    Contended {
        /// What the key describes.
        what: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// The system has no random numbers.
    #[error("the kernel returned no random number: {0}")]
    NoRandom(String),
}

impl ReplicationError {
    /// Whether the disk of this node is full. Revocations are still written.
    pub(super) fn is_full_disk(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error, isolet_store::Error::Full),
            Self::File { source, .. } => {
                matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}
