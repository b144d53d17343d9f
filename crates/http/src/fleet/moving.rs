//! Sandboxes that no node has, and sandboxes on their way to another node.

use isolet_sandbox::SandboxInfo;
use isolet_wire::node::NodeName;

/// A sandbox that only the object store has.
#[derive(Debug, Clone)]
pub struct StoredAway {
    /// What it was when it was stored away: asleep.
    pub info: SandboxInfo,
    /// The revision of the record of ownership.
    pub epoch: u64,
    /// The region in which it was placed, if that was read.
    pub region: Option<String>,
}

/// Where a sandbox is moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveTo {
    /// To this node.
    Node(NodeName),
    /// To a node of this region that placement chooses.
    Region(String),
    /// To another node of its region that placement chooses.
    Away,
}
