//! A delay between a node and etcd: the node's connections go through relays in the clients'
//! namespace. The kernel of a test machine may have no `netem`.

use crate::addresses::{CLIENTS, ETCD_PORT, etcd};
use crate::namespace::NetworkNamespace;
use crate::relay::Relay;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

/// Delays everything between a node and etcd. It ends when it is dropped.
#[derive(Debug)]
pub struct EtcdDelay<'a> {
    node: &'a NetworkNamespace,
    _relays: Vec<Relay>,
}

impl<'a> EtcdDelay<'a> {
    /// Each answer of one of `members` members arrives `round_trip` later. Connections that the node
    /// has to etcd are reset. Call it in the clients' namespace.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn new(node: &'a NetworkNamespace, members: u8, round_trip: Duration) -> Self {
        let mut rules = String::new();
        let mut relays = Vec::new();
        for index in 0..members {
            let listener = TcpListener::bind((CLIENTS, 0)).expect("a port of the clients");
            let to = SocketAddr::from((etcd(index), ETCD_PORT));
            let relay = Relay::start(listener, to, round_trip / 2);
            rules.push_str(&format!(
                "ip daddr {} tcp dport {ETCD_PORT} dnat to {}\n",
                etcd(index),
                relay.address()
            ));
            relays.push(relay);
        }
        let list: Vec<String> = (0..members).map(|index| etcd(index).to_string()).collect();
        let list = list.join(", ");
        node.nft(&format!(
            "table ip etcd_delay {{\n\
             chain to_relay {{\ntype nat hook output priority -100;\n{rules}}}\n\
             chain former {{\ntype filter hook output priority 0;\n\
             ip daddr {{ {list} }} tcp dport {ETCD_PORT} reject with tcp reset\n}}\n}}\n"
        ));
        Self { node, _relays: relays }
    }

    /// The address that the relays listen on.
    #[must_use]
    pub fn address() -> Ipv4Addr {
        CLIENTS
    }
}

impl Drop for EtcdDelay<'_> {
    fn drop(&mut self) {
        let mut delete = self.node.command("nft");
        let _ = delete.args(["delete", "table", "ip", "etcd_delay"]).output();
    }
}
