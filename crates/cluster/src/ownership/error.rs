//! Why ownership could not be read or changed.

use crate::etcd::EtcdError;
use crate::model::Epoch;
use crate::model::Owner;
use crate::model::SandboxKey;
use isolet_wire::node::NodeName;

/// Ownership could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnershipError {
    /// etcd did not do what was asked.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// This node does not hold its lease, so it can own nothing new.
    #[error("the node {node} does not hold its lease; retry on another node, or later")]
    NotAMember {
        /// This node.
        node: NodeName,
    },
    /// The epoch is not that of the owner: another node owns the sandbox, or it was deleted.
    #[error("{sandbox} is not owned at the epoch {epoch} any more ({})", now(owner.as_deref()))]
    Stale {
        /// The sandbox.
        sandbox: SandboxKey,
        /// The epoch that was compared.
        epoch: Epoch,
        /// The owner now.
        owner: Option<Box<Owner>>,
    },
    /// The record of the owner cannot be read.
    #[error("the owner of {sandbox} in etcd cannot be read: {reason}")]
    Unreadable {
        /// The sandbox.
        sandbox: SandboxKey,
        /// Why.
        reason: String,
    },
    /// A name or value of a fenced key is too long.
    #[error("{what} of a fenced key of {sandbox} has {bytes} bytes; at most {limit} are possible")]
    TooLarge {
        /// The sandbox.
        sandbox: SandboxKey,
        /// The part.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// Its limit.
        limit: usize,
    },
    /// The system has no random numbers.
    #[error("the kernel returned no random number")]
    NoRandom,
}

fn now(owner: Option<&Owner>) -> String {
    match owner {
        Some(owner) => format!("the node {} owns it at the epoch {}", owner.node, owner.epoch),
        None => "nobody owns it".to_owned(),
    }
}
