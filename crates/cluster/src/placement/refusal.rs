//! Why no node can take a sandbox, and when to ask again.

use crate::model::Label;
use crate::model::Labels;
use std::fmt;
use std::time::Duration;

/// When to retry if only an operator can help.
const OPERATOR_HELPS: Duration = Duration::from_secs(60);
/// When to retry if nodes may return: the lifetime of a lease, about.
const NODES_RETURN: Duration = Duration::from_secs(10);
/// When to retry if sandboxes may end or fall asleep.
const SANDBOXES_END: Duration = Duration::from_secs(5);

/// No node can take the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no node can take the sandbox: {missing}; retry in {} s", retry_after.as_secs())]
pub struct NoPlace {
    /// The first demand that no node meets.
    pub missing: Missing,
    /// When to retry.
    pub retry_after: Duration,
}

/// A demand that no node meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The region has no node.
    NoNode {
        /// The region.
        region: Label,
    },
    /// No node of the region has the labels.
    Labels {
        /// The region.
        region: Label,
        /// The labels.
        labels: Labels,
    },
    /// No such node holds sandboxes of the class `store`.
    Store {
        /// The region.
        region: Label,
    },
    /// No such node accepts sandboxes.
    Accepting {
        /// The region.
        region: Label,
        /// The number of such nodes.
        nodes: usize,
    },
    /// The disks of all such nodes are below their floors.
    Disk {
        /// The region.
        region: Label,
        /// The number of such nodes.
        nodes: usize,
    },
    /// Snapshots of no such node get to the object store.
    Pushes {
        /// The region.
        region: Label,
        /// The number of such nodes.
        nodes: usize,
    },
    /// All such nodes have as many sandboxes as they may have.
    Sandboxes {
        /// The region.
        region: Label,
        /// The number of such nodes.
        nodes: usize,
    },
    /// No such node has enough free memory.
    Memory {
        /// The region.
        region: Label,
        /// What the sandbox needs, in MiB.
        needed_mib: u64,
        /// The most that a node has free, in MiB.
        most_free_mib: u64,
    },
}

impl NoPlace {
    pub(super) fn of(missing: Missing) -> Self {
        let retry_after = match &missing {
            Missing::NoNode { .. }
            | Missing::Labels { .. }
            | Missing::Store { .. }
            | Missing::Disk { .. } => OPERATOR_HELPS,
            Missing::Accepting { .. } | Missing::Pushes { .. } => NODES_RETURN,
            Missing::Sandboxes { .. } | Missing::Memory { .. } => SANDBOXES_END,
        };
        Self { missing, retry_after }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode { region } => write!(f, "the region {region} has no node"),
            Self::Labels { region, labels } => {
                write!(f, "no node in {region} has the labels")?;
                labels.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
            }
            Self::Store { region } => {
                write!(f, "no such node in {region} holds sandboxes of the class store")
            }
            Self::Accepting { region, nodes } => write!(
                f,
                "none of {nodes} nodes in {region} accepts sandboxes, because each is cordoned, \
                 starting, stopping or not reachable"
            ),
            Self::Disk { region, nodes } => write!(
                f,
                "the disks of all {nodes} nodes in {region} that accept sandboxes have less free space \
                 than their floor (free_space_floor_mib)"
            ),
            Self::Pushes { region, nodes } => write!(
                f,
                "first snapshots of sandboxes of the class store do not get to the object store on any of \
                 {nodes} nodes in {region}; the logs of the nodes say why"
            ),
            Self::Sandboxes { region, nodes } => {
                write!(f, "all {nodes} nodes in {region} have as many sandboxes as they may have")
            }
            Self::Memory { region, needed_mib, most_free_mib } => write!(
                f,
                "it needs {needed_mib} MiB of memory, and no node in {region} has more than \
                 {most_free_mib} MiB free"
            ),
        }
    }
}
