//! An ownership that a node gives up.

use isolet_cluster::model::{Epoch, SandboxKey};
use isolet_sandbox::OwnedId;
use isolet_wire::node::NodeName;
use std::sync::Arc;

/// An ownership to give up.
pub(crate) enum Release {
    /// That of a sandbox that was not created, at an epoch, by the node for which it was placed.
    Unused { sandbox: SandboxKey, epoch: Epoch, node: NodeName },
    /// That of a sandbox of this node, if there is no such sandbox any more.
    Absent(Arc<OwnedId>),
}
