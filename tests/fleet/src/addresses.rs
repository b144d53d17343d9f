//! The addresses of all parts. The namespaces are private, so every fleet has the same ones.

use std::net::Ipv4Addr;

/// The clients, and the router of all nodes.
pub const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 232, 0, 1);
/// A host of the internet, which sandboxes may reach. It is in the clients' namespace.
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// The object store.
pub const STORE: Ipv4Addr = Ipv4Addr::new(10, 232, 0, 31);
/// The port of the object store.
pub const STORE_PORT: u16 = 9000;
/// The port of a node's API.
pub const API_PORT: u16 = 7300;
/// The port of a node's listener for other nodes.
pub const PEER_PORT: u16 = 7301;
/// The port of etcd for clients.
pub const ETCD_PORT: u16 = 2379;

/// The address of a node, by its index.
#[must_use]
pub fn node(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 232, 0, 11 + index)
}

/// The address of a member of etcd, by its index.
#[must_use]
pub fn etcd(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 232, 0, 21 + index)
}
