//! A fleet of three nodes in network namespaces, with a three-member etcd and mutual TLS.
//!
//! Each fault happens [`ROUNDS`] times here; `soak` has them more often.

mod clocks;
mod departures;
mod durable;
mod etcd_faults;
mod images;
mod moves;
mod node_kills;
mod other_fleet;
mod partitions;
mod placement;
mod requests;
mod rolling;
mod servers;
mod soak;
mod store_faults;
mod store_lies;
mod stored;
mod tenants;
mod trust;
mod webhooks;

/// How often each fault happens.
const ROUNDS: usize = 3;
/// The names of the nodes.
const NODES: [&str; 3] = ["a", "b", "c"];
