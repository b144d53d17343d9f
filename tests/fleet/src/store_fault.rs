//! Errors of the object store, as one node sees them.

use crate::addresses::{CLIENTS, STORE, STORE_PORT};
use crate::namespace::NetworkNamespace;
use isolet_kit::s3::{Fault, FaultyProxy};
use std::net::{SocketAddr, TcpListener};

/// What becomes of packets that do not go to the proxy.
const REJECT: &str = "reject with tcp reset";
/// The table of the packet filter.
const TABLE: &str = "ip store_fault";

/// How the object store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFailure {
    /// It refuses connections.
    Refuses,
    /// It does not answer: packets vanish.
    Silent,
    /// It answers every request with the status 500.
    Errors,
}

impl StoreFailure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Refuses, Self::Silent, Self::Errors];
}

/// A failure of the object store for one node. Open connections end. It ends when it is dropped.
#[derive(Debug)]
pub struct StoreFault<'a> {
    node: &'a NetworkNamespace,
    proxy: Option<FaultyProxy>,
}

impl<'a> StoreFault<'a> {
    /// Lets the object store fail for a node. Call it in the clients' namespace.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn new(node: &'a NetworkNamespace, failure: StoreFailure) -> Self {
        match failure {
            StoreFailure::Silent => Self::redirected(node, "drop", None),
            StoreFailure::Refuses => Self::redirected(node, REJECT, None),
            StoreFailure::Errors => Self::planned(node, |_, _, _| Fault::Status500),
        }
    }

    /// Lets a plan decide what the object store answers to a node: by method, path and number of the request.
    /// Call it in the clients' namespace.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn planned(
        node: &'a NetworkNamespace,
        plan: impl Fn(&str, &str, u64) -> Fault + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((CLIENTS, 0)).expect("a port of the clients");
        let proxy = FaultyProxy::between(listener, SocketAddr::from((STORE, STORE_PORT)));
        proxy.plan(plan);
        Self::redirected(node, REJECT, Some(proxy))
    }

    /// The number of requests that were not answered by the store as it does.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.proxy.as_ref().map_or(0, FaultyProxy::injected)
    }

    fn redirected(node: &'a NetworkNamespace, verdict: &str, proxy: Option<FaultyProxy>) -> Self {
        let redirect = proxy.as_ref().map(|proxy| {
            format!(
                "chain to_proxy {{\ntype nat hook output priority -100;\n\
                 ip daddr {STORE} tcp dport {STORE_PORT} dnat to {}\n}}\n",
                proxy.address()
            )
        });
        // A redirected connection has another address when it reaches the filter.
        node.nft(&format!(
            "table {TABLE} {{\n{}chain verdict_of_all {{\ntype filter hook output priority 0;\n\
             ip daddr {STORE} tcp dport {STORE_PORT} {verdict}\n}}\n}}\n",
            redirect.unwrap_or_default()
        ));
        Self { node, proxy }
    }
}

impl Drop for StoreFault<'_> {
    fn drop(&mut self) {
        let mut delete = self.node.command("nft");
        let _ = delete.args(["delete", "table"]).args(TABLE.split(' ')).output();
    }
}
