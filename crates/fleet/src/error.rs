//! Why a server does not become a node, and errors of the parts as those of the HTTP server.

use crate::replication::ReplicationError;
use isolet_cluster::etcd::EtcdError;
use isolet_cluster::membership::JoinError;
use isolet_cluster::ownership::OwnershipError;
use isolet_http::fleet::FleetError;
use isolet_wire::node::NodeName;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A server did not become a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The identity of the data directory cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The certificate files cannot be used.
    #[error("[cluster] peer_dir {}: {reason}; `isolet cluster check` looks at them", directory.display())]
    Certificates {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The certificate is that of another node.
    #[error(
        "the certificate in {} is that of the node {certified}, not of {node}: issue another one \
         (isolet cluster issue {node}), or change `[cluster] node`",
        directory.display()
    )]
    OtherNode {
        /// The directory.
        directory: PathBuf,
        /// The node of the certificate.
        certified: NodeName,
        /// The configured node.
        node: NodeName,
    },
    /// The data directory belongs to another fleet.
    #[error(
        "{} belongs to the fleet {own}, and below the prefix `{prefix}` etcd has {}: correct `[cluster] etcd` or \
         `prefix`. If etcd has lost its data, or this node is to join another fleet, start the server once with \
         --accept-fleet; its sandboxes of the class store end then",
        data_dir.display(),
        found.as_ref().map_or("no fleet".to_owned(), |found| format!("the fleet {found}"))
    )]
    OtherFleet {
        /// The data directory.
        data_dir: PathBuf,
        /// The fleet of the data directory.
        own: String,
        /// The fleet in etcd, if it has one.
        found: Option<String>,
        /// The prefix of all keys.
        prefix: String,
    },
    /// The address for other nodes cannot be used.
    #[error("cannot listen on {address} for other nodes; change `[cluster] listen`: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Membership was refused.
    #[error("cannot join the fleet: {0}")]
    Join(#[from] JoinError),
    /// The records of ownership cannot be read or written.
    #[error("cannot compare the records of ownership: {0}")]
    Ownership(#[from] OwnershipError),
    /// Keys, network profiles or revocation lists cannot be exchanged with the fleet.
    #[error("cannot take what all nodes of the fleet share: {0}")]
    Replication(#[from] ReplicationError),
    /// The ownership of sandboxes cannot be followed.
    #[error("cannot follow the ownership of sandboxes: {0}")]
    Sandboxes(#[from] isolet_sandbox::Error),
    /// etcd did not answer for too long.
    #[error(
        "cannot join the fleet within {} s: {last}; sandboxes keep running, and the server has to be \
         started again", after.as_secs()
    )]
    TooLate {
        /// How long it was tried.
        after: Duration,
        /// The last error.
        last: String,
    },
}

impl NodeError {
    /// The error of etcd, if another attempt may succeed.
    pub(crate) fn of_etcd(&self) -> Option<&EtcdError> {
        let error = match self {
            Self::Join(JoinError::Etcd(error))
            | Self::Ownership(OwnershipError::Etcd(error))
            | Self::Replication(ReplicationError::Etcd(error)) => error,
            _ => return None,
        };
        (!matches!(error, EtcdError::Settings { .. })).then_some(error)
    }
}

impl From<EtcdError> for NodeError {
    fn from(error: EtcdError) -> Self {
        Self::Join(error.into())
    }
}

/// The error for clients.
pub(crate) fn unavailable(error: &OwnershipError) -> FleetError {
    FleetError::Unavailable(error.to_string())
}
