//! A fleet on one machine. Three nodes, the members of etcd and an object store each have a network
//! namespace; a bridge connects them with the namespace of the clients, which is that of the calling
//! thread.
//!
//! ```text
//! clients 10.232.0.1, a public host 198.51.100.10
//!   │ bridge
//!   ├─ node a   10.232.0.11   isolet, its gateway, its sandboxes
//!   ├─ node b   10.232.0.12
//!   ├─ node c   10.232.0.13
//!   ├─ etcd 1   10.232.0.21   (2 and 3 likewise)
//!   └─ store    10.232.0.31   an S3 server
//! ```
//!
//! All of it disappears with the namespaces, whose last reference is a descriptor of this process or a
//! process that it started. Nothing of the machine's own network is changed, and nothing listens
//! outside of these namespaces. Functions panic when a part cannot be created, because only tests and
//! tools for developers use this crate.
//!
//! `namespace` and `switch` are the network, `cut`, `delay` and `store_fault` its faults; `etcd`, `certificates` and
//! `object_store` are what nodes need, `registry_relay` leads a node to a registry, `cordons` steer
//! placement, and `local_fleet` starts all of them.
#![forbid(unsafe_code)]

pub mod addresses;
mod certificates;
mod cordons;
mod cut;
mod delay;
mod etcd;
mod local_fleet;
mod namespace;
mod node;
mod object_store;
mod public_host;
mod registry_relay;
pub mod relay;
mod store_fault;
mod switch;

pub use certificates::PeerAuthority;
pub use cordons::Cordons;
pub use cut::{Cut, CutDirection};
pub use delay::EtcdDelay;
pub use etcd::{EtcdClient, EtcdCluster, EtcdFiles};
pub use local_fleet::{FleetOptions, KEY, LocalFleet};
pub use namespace::NetworkNamespace;
pub use node::LocalNode;
pub use object_store::ObjectStore;
pub use public_host::PublicHost;
pub use registry_relay::RegistryRelay;
pub use store_fault::{StoreFailure, StoreFault};
pub use switch::Switch;
