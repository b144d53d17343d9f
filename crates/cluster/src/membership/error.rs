//! Why a node did not join, and why an operator's command failed.

use crate::etcd::EtcdError;
use crate::model::BadRecord;
use isolet_wire::node::NodeName;

/// A node did not join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// etcd did not do what was asked.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Another node with this name lives.
    #[error(
        "a node with the name {name} is a member already, at {address}: give this node another \
         `[cluster] node`, or stop that one and wait until its lease ends, in {left_s} s"
    )]
    NameTaken {
        /// The name.
        name: NodeName,
        /// Where the other node is reached.
        address: String,
        /// The seconds for which its lease lasts without a renewal.
        left_s: u32,
    },
    /// A node of the fleet has another format.
    #[error(
        "the node {name} of this fleet has format {found}, and this isolet uses format {own}; \
         use another `[cluster] prefix`, or stop all nodes of the fleet and start it again with \
         empty data directories and without its keys in etcd"
    )]
    OtherFormat {
        /// The name of that node.
        name: NodeName,
        /// The format of that node; 0: its record names none.
        found: u32,
        /// The format of this node.
        own: u32,
    },
    /// The record of this node is not valid.
    #[error("this node cannot describe itself: {0}")]
    Record(#[from] BadRecord),
    /// Registrations failed again and again because the key changed.
    #[error(
        "the key of the node {name} changed {attempts} times while this node registered; retry"
    )]
    Contended {
        /// The name.
        name: NodeName,
        /// The number of attempts.
        attempts: u32,
    },
}

/// A command of an operator failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// etcd did not do what was asked.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// No node of this name was ever a member, or it was removed.
    #[error("no node has the name {name}; `isolet node ls` lists all")]
    Unknown {
        /// The name.
        name: NodeName,
    },
    /// The node holds its lease, so it cannot be declared dead.
    #[error(
        "the node {name} holds its lease: stop its server and wait until the lease ends, or drain \
         the node"
    )]
    Alive {
        /// The name.
        name: NodeName,
    },
    /// The node still owns sandboxes, so it cannot be forgotten.
    #[error("the node {name} still owns {sandboxes} sandboxes; delete them first")]
    OwnsSandboxes {
        /// The name.
        name: NodeName,
        /// Their number.
        sandboxes: u64,
    },
    /// The node was not declared dead, so it cannot be forgotten.
    #[error("the node {name} was not declared dead")]
    NotDead {
        /// The name.
        name: NodeName,
    },
}
