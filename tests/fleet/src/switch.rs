//! The bridge between all namespaces.

use crate::addresses::{CLIENTS, PUBLIC};
use crate::namespace::NetworkNamespace;
use isolet_kit::net::ip;
use std::net::Ipv4Addr;

/// A bridge in the namespace of the clients.
#[derive(Debug)]
pub struct Switch {
    clients: NetworkNamespace,
}

impl Switch {
    /// Moves this thread into a new namespace, that of the clients, and creates the bridge there.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn enter() -> Self {
        let clients = NetworkNamespace::enter_new().expect("a network namespace: run this as root");
        // A fixed hardware address: that of a bridge is otherwise the lowest of its ports, and changes when one of
        // them disappears, which the other namespaces notice a minute later.
        ip("link add br0 address 02:00:00:00:00:01 type bridge");
        ip(&format!("addr add {CLIENTS}/24 dev br0"));
        ip("link set br0 up");
        ip(&format!("addr add {PUBLIC}/32 dev lo"));
        Self { clients }
    }

    /// Creates a namespace with an address on the bridge. The clients are its router.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn attach(&self, address: Ipv4Addr) -> NetworkNamespace {
        let namespace = NetworkNamespace::create();
        let port = format!("port{}", address.octets()[3]);
        let path = namespace.path();
        ip(&format!("link add {port} type veth peer name eth0 netns {}", path.display()));
        ip(&format!("link set {port} master br0 up"));
        namespace.run("ip", &format!("addr add {address}/24 dev eth0"));
        namespace.run("ip", "link set eth0 up");
        namespace.run("ip", &format!("route add default via {CLIENTS}"));
        namespace
    }

    /// The namespace of the clients.
    #[must_use]
    pub fn clients(&self) -> &NetworkNamespace {
        &self.clients
    }
}
