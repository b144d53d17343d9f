//! Why files are unusable, and why a handshake failed.

use crate::parsed::BadCertificate;
use isolet_wire::node::NodeName;
use rustls::server::VerifierBuilderError;
use std::io;
use std::path::{Path, PathBuf};

/// Why the files of a node are unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("{path} is unusable: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: BadCertificate,
    },
    /// No private key, or one that cannot be used.
    #[error("{path} contains no usable private key: {reason}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The key is another one's.
    #[error("the private key in {key} does not belong to the certificate in {certificate}")]
    OtherKey {
        /// The file with the key.
        key: PathBuf,
        /// The file with the certificate.
        certificate: PathBuf,
    },
    /// All trusted authorities have expired.
    #[error(
        "every certificate authority in {0} has expired; create another one with `isolet cluster init`"
    )]
    Expired(PathBuf),
    /// A trusted authority has no revocation list.
    #[error(
        "{path} has no revocation list that {authority} signed; copy ca.pem and revoked.pem from the directory of the CA"
    )]
    NoList {
        /// The file with the lists, or where the lists came from.
        path: PathBuf,
        /// The name of the authority.
        authority: String,
    },
    /// The certificate is of another node than before.
    #[error("the certificate in {path} is that of {found}; this node is {own}")]
    OtherNode {
        /// The file.
        path: PathBuf,
        /// The node in the file.
        found: NodeName,
        /// The node of the server that runs.
        own: NodeName,
    },
    /// A verifier or a configuration cannot be built.
    #[error("TLS cannot be configured: {0}")]
    Configuration(String),
}

impl LoadError {
    pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    pub(super) fn invalid(path: &Path) -> impl FnOnce(BadCertificate) -> Self {
        let path = path.to_owned();
        move |reason| Self::Invalid { path, reason }
    }

    /// For lists that did not come from a file of this node.
    pub(crate) fn offered(problem: ListProblem) -> Self {
        problem.at(Path::new("the received text"))
    }
}

impl From<VerifierBuilderError> for LoadError {
    fn from(error: VerifierBuilderError) -> Self {
        Self::Configuration(error.to_string())
    }
}

impl From<rustls::Error> for LoadError {
    fn from(error: rustls::Error) -> Self {
        Self::Configuration(error.to_string())
    }
}

/// Why revocation lists are unusable.
pub(crate) enum ListProblem {
    Invalid(BadCertificate),
    Missing { authority: String },
}

impl ListProblem {
    pub(crate) fn at(self, path: &Path) -> LoadError {
        let path = path.to_owned();
        match self {
            Self::Invalid(reason) => LoadError::Invalid { path, reason },
            Self::Missing { authority } => LoadError::NoList { path, authority },
        }
    }
}

/// Why a connection with a peer was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The connection failed, or TLS did: the source says whose certificate was refused and why.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The certificate is not accepted any more.
    #[error("the certificate of the peer is refused: {0}")]
    Certificate(rustls::Error),
    /// The certificate is not that of a node.
    #[error("the certificate of the peer is refused: {0}")]
    Name(#[from] BadCertificate),
    /// Another node answered.
    #[error("the node {found} answered for {dialled}")]
    OtherNode {
        /// The node that was dialled.
        dialled: NodeName,
        /// The node in the certificate.
        found: NodeName,
    },
    /// A node has too many connections.
    #[error("the node {node} has {limit} connections to this one, the maximum")]
    TooManyConnections {
        /// The node.
        node: NodeName,
        /// The maximum.
        limit: usize,
    },
    /// The handshake took too long.
    #[error("the TLS handshake took too long")]
    Timeout,
}
