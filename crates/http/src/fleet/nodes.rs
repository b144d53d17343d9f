//! The nodes of a fleet, as the API describes them, and what an operator does with them.

use isolet_wire::node::NodeName;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Whether a node can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It holds its lease.
    Ready,
    /// It holds its lease, but the node that answers failed to reach it.
    Suspect,
    /// Its server does not answer requests yet, and takes no new sandboxes.
    Starting,
    /// Its server is stopping, and takes no new sandboxes.
    Stopping,
    /// Its lease has ended. Sandboxes of the class `node` wait for it.
    Lost,
    /// Its lease has ended, and an operator has declared it dead.
    Dead,
}

impl NodeState {
    /// The word that the API uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Lost => "lost",
            Self::Dead => "dead",
        }
    }
}

/// A node of the fleet.
// More than 12 fields: one for each member of the JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeInfo {
    /// The name, unique in the fleet.
    pub name: String,
    /// The region.
    pub region: String,
    /// The labels, which a request for a sandbox can demand.
    pub labels: BTreeMap<String, String>,
    /// `ready`, `suspect` (the node that answers failed to reach it), `starting`, `stopping`, `lost` (its lease has
    /// ended) or `dead` (an operator has declared it dead).
    #[schema(value_type = String)]
    pub state: NodeState,
    /// Whether an operator has excluded it from placement.
    pub cordoned: bool,
    /// What only keys of the tenant `default` see.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub details: Option<NodeDetails>,
    /// The sandboxes that the node owns. Only when a single node is requested, with a key of the tenant
    /// `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub owned: Option<OwnedSandboxes>,
}

/// Details of a node that are the operator's business.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = NodeDetails)]
pub struct NodeDetails {
    /// Where other nodes reach it: `HOST:PORT`.
    pub address: String,
    /// The version of its server.
    pub version: String,
    /// When its server started, in milliseconds since 1970. 0 if its version does not say.
    pub started_at_ms: i64,
    /// The revision of etcd at which it registered. `null` if its lease has ended.
    #[schema(required = true)]
    pub registered_epoch: Option<i64>,
    /// Whether it holds sandboxes of the class `store`.
    pub store: bool,
    /// What it has.
    pub capacity: NodeCapacity,
    /// What is in use, as it last reported.
    pub load: NodeLoad,
}

/// What a node has for all its sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = NodeCapacity)]
pub struct NodeCapacity {
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Processor time, in thousandths of one core.
    pub cpu_millis: u64,
    /// Space on its disk, in MiB.
    pub disk_mib: u64,
    /// The largest number of sandboxes.
    pub sandboxes: u32,
}

/// What is in use on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = NodeLoad)]
pub struct NodeLoad {
    /// Memory that running sandboxes may use, in MiB.
    pub memory_reserved_mib: u64,
    /// Space in use on its disk, in MiB.
    pub disk_used_mib: u64,
    /// The number of sandboxes, also of those that sleep.
    pub sandboxes: u32,
    /// The number of sandboxes that run.
    pub running: u32,
}

/// The sandboxes that a node owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OwnedSandboxes)]
pub struct OwnedSandboxes {
    /// How many are of the class `node`. If the node does not return, their files are lost.
    pub node: usize,
    /// How many are of the class `store`. Another node restores them from their latest snapshot.
    pub store: usize,
    /// Sandboxes of the class `node` as `TENANT/ID`, the first 100.
    pub first: Vec<String>,
    /// Whether the node may own more than were counted.
    pub is_cut: bool,
}

/// The nodes of the fleet, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = NodeList)]
pub struct NodeList {
    /// The node that answers.
    pub here: String,
    /// Whether the answer is current. If not, the node that answers has lost its connection to etcd,
    /// and the nodes are those that it knew before.
    pub is_current: bool,
    /// The nodes.
    pub nodes: Vec<NodeInfo>,
    /// Keys in etcd that could not be used, at most 32. Only with a key of the tenant `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub skipped: Option<Vec<SkippedKey>>,
}

/// A key in etcd that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SkippedKey)]
pub struct SkippedKey {
    /// The key.
    pub key: String,
    /// Why it could not be used.
    pub reason: String,
}

impl NodeInfo {
    /// What every tenant may see.
    #[must_use]
    pub fn without_details(self) -> Self {
        Self { details: None, owned: None, ..self }
    }
}

impl NodeList {
    /// What every tenant may see.
    #[must_use]
    pub fn without_details(self) -> Self {
        let nodes = self.nodes.into_iter().map(NodeInfo::without_details).collect();
        Self { nodes, skipped: None, ..self }
    }
}

/// What an operator does with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    /// Exclude it from placement.
    Cordon,
    /// Include it in placement again.
    Uncordon,
    /// Declare it dead. Its lease must have ended.
    DeclareDead,
}

/// Why an operator's command about a node failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The records of the fleet cannot be read or written.
    #[error("the records of the fleet are unavailable: {0}")]
    Unavailable(String),
    /// No node has this name.
    #[error("no node has the name \"{0}\"")]
    Unknown(NodeName),
    /// The node holds its lease.
    #[error("node \"{0}\" holds its lease, so it cannot be removed")]
    Alive(NodeName),
    /// The node was not declared dead.
    #[error("node \"{0}\" was not declared dead")]
    NotDead(NodeName),
    /// The node still owns sandboxes.
    #[error("node \"{node}\" still owns {sandboxes} sandboxes")]
    OwnsSandboxes {
        /// The node.
        node: NodeName,
        /// Their number.
        sandboxes: u64,
    },
    /// The node still owns sandboxes of the class `node` that were moved to it, and that it has not
    /// restored.
    #[error(
        "{kept} sandboxes of node \"{node}\" are in the object store, where a move has left them, and \
         are not given up ({released} others were): {}",
        named(sandboxes, *kept)
    )]
    OwnsRestorable {
        /// The node.
        node: NodeName,
        /// How many others were given up.
        released: usize,
        /// Their number.
        kept: usize,
        /// Some of them as `TENANT/ID`.
        sandboxes: Vec<String>,
    },
}

/// The sandboxes, of `all`.
fn named(sandboxes: &[String], all: usize) -> String {
    let names = sandboxes.join(", ");
    match all.saturating_sub(sandboxes.len()) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// Where a sandbox is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The node that owns it.
    pub node: NodeName,
    /// The region in which it was placed.
    pub region: String,
    /// Why it was placed there; `None`: not known without asking etcd.
    pub reason: Option<String>,
}
