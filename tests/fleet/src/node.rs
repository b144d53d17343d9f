//! One node: a server in a network namespace.

use crate::addresses::{API_PORT, PEER_PORT};
use crate::cut::{Cut, CutDirection};
use crate::delay::EtcdDelay;
use crate::namespace::NetworkNamespace;
use crate::store_fault::{StoreFailure, StoreFault};
use isolet_kit::s3::Fault;
use isolet_kit::{Http, LONG, Options, Sandbox, Server, Traces, wait_until};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// A node of a [`crate::LocalFleet`].
#[derive(Debug)]
pub struct LocalNode {
    /// Its name.
    pub name: &'static str,
    /// Its server, which can be killed and started.
    pub server: Server,
    /// Its address on the bridge.
    pub address: Ipv4Addr,
    network: Arc<NetworkNamespace>,
}

impl LocalNode {
    pub(crate) fn start(
        name: &'static str,
        address: Ipv4Addr,
        network: Arc<NetworkNamespace>,
        options: Options,
    ) -> Self {
        let server = options.in_network(&network.path(), address, API_PORT).start();
        Self { name, server, address, network }
    }

    /// A client of the tenant `default`.
    #[must_use]
    pub fn http(&self) -> Http {
        self.server.http()
    }

    /// A sandbox as a client of this node sees it, whether or not it exists.
    #[must_use]
    pub fn sandbox(&self, id: &str) -> Sandbox {
        self.server.named(id)
    }

    /// Waits until this node knows `count` nodes that accept sandboxes.
    pub(crate) fn wait_until_all_are_ready(&self, count: usize) {
        wait_until("all nodes are ready", LONG, || {
            let list = self.http().get("/v1/nodes").expect(200).json();
            let all = list["nodes"].as_array().expect("a list").clone();
            let ready = all.iter().filter(|node| node["state"] == "ready").count();
            (ready == count).then_some(())
        });
    }

    /// The address of the listener for other nodes.
    #[must_use]
    pub fn peer_address(&self) -> (Ipv4Addr, u16) {
        (self.address, PEER_PORT)
    }

    /// The network namespace of the node.
    #[must_use]
    pub fn network(&self) -> &NetworkNamespace {
        &self.network
    }

    /// The directories of the sandboxes that this node holds.
    #[must_use]
    pub fn held(&self) -> BTreeSet<String> {
        Traces::of(&self.server.data()).directories
    }

    /// Cuts the node off from addresses until the result is dropped.
    #[must_use]
    pub fn cut(&self, name: &str, from: &[Ipv4Addr], direction: CutDirection) -> Cut<'_> {
        Cut::new(&self.network, name, from, direction)
    }

    /// Delays everything between the node and etcd until the result is dropped.
    #[must_use]
    pub fn delay_etcd(&self, members: u8, round_trip: Duration) -> EtcdDelay<'_> {
        EtcdDelay::new(&self.network, members, round_trip)
    }

    /// Lets a plan decide what the object store answers to this node until the result is dropped: by method,
    /// path and number of the request.
    #[must_use]
    pub fn plan_store(
        &self,
        plan: impl Fn(&str, &str, u64) -> Fault + Send + 'static,
    ) -> StoreFault<'_> {
        StoreFault::planned(&self.network, plan)
    }

    /// Lets the object store fail for this node until the result is dropped.
    #[must_use]
    pub fn fail_store(&self, failure: StoreFailure) -> StoreFault<'_> {
        StoreFault::new(&self.network, failure)
    }
}
