//! An ownership that a node gives up.

use isolet_cluster::model::{Epoch, SandboxKey};
use isolet_sandbox::OwnedId;
use isolet_wire::node::NodeName;
use std::sync::Arc;

/// An ownership to give up.
pub(crate) enum Release {
    /// That of a node for which a sandbox was placed, at an epoch, unless that node has accepted it.
    Unaccepted {
        /// The sandbox.
        sandbox: SandboxKey,
        /// The epoch.
        epoch: Epoch,
        /// The node.
        node: NodeName,
    },
    /// That of a sandbox of this node, if there is no such sandbox any more.
    Absent(Arc<OwnedId>),
    /// That of a sandbox that this node lacks and whose lifetime is over: it is restored first, and ends then.
    Ended(Arc<OwnedId>),
}
