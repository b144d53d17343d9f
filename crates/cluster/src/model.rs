//! Nodes, owners, their names and keys in etcd, and the settings of a node.

mod keys;
mod label;
mod member;
mod node_record;
mod owner;
mod sandbox_key;
mod settings;
mod shared_keys;

pub use isolet_wire::lease::{BootTime, Epoch, LeaseDeadline};
pub use keys::{BadPrefix, Keys, NodeKey, PREFIX_BYTES_MAX};
pub use label::{BadLabel, LABEL_BYTES_MAX, LABELS_MAX, Label, Labels};
pub use member::{Member, Members, NODES_MAX, NodeState, SKIPPED_MAX, SkippedKey};
pub use node_record::{
    BadRecord, Capacity, IMAGES_MAX, Load, NodeRecord, RECORD_BYTES_MAX, ReportedState,
};
pub use owner::{Class, Custody, Owner, OwnerValue, REASON_BYTES_MAX};
pub use sandbox_key::{BadSandboxKey, ID_BYTES_MAX, SandboxKey};
pub use settings::{ClusterFile, ClusterSettings, LEASE_TTL_S, PlacementStrategy, SettingsError};
