//! The crate against a real etcd, which each test starts for itself.

mod client;
mod etcd_server;
mod faults;
mod fleet;
mod guard;
mod joining;
mod nodes;
mod owners;
mod stored;
mod takeover;
mod tls;
