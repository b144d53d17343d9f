//! What a node of a fleet does. On a server that serves alone, all of it is 0.

use crate::labels::{Label, described};
use crate::requests::whole;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Handles for the work of a node.
#[derive(Debug)]
pub struct FleetMetrics {
    nodes: Family<Label, Gauge>,
    lease_left: Gauge,
    not_durable: Gauge,
    /// Requests that another node answered.
    pub forwarded: Counter,
    /// Requests to a node that could not be reached.
    pub unreachable: Counter,
    /// Requests to a node that stopped answering.
    pub lost: Counter,
    /// Owners of sandboxes that were read from etcd because this node did not know them.
    pub lookups: Counter,
    /// New sandboxes that this node placed on itself.
    pub placed_here: Counter,
    /// New sandboxes that this node placed on another node.
    pub placed_elsewhere: Counter,
    /// New sandboxes for which no node had room.
    pub placed_nowhere: Counter,
    /// New sandboxes that the node on which this one placed them refused for want of room.
    pub placed_refused: Counter,
    /// Snapshots that this node has not restored because a tenant called for an older one.
    pub skipped: Counter,
}

impl FleetMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let nodes: Family<Label, Gauge> =
            described("isolet_fleet_nodes", "Nodes of the fleet by state, as this node sees them")
                .register(registry, Family::default());
        // An alert asks for it, on a server that serves alone too.
        nodes.get_or_create(&[("state", "lost")]).set(0);
        let lease_left = described(
            "isolet_fleet_lease_left",
            "Time for which this node certainly holds its lease; 0 if it does not, or serves alone",
        )
        .unit(Unit::Seconds)
        .register(registry, Gauge::default());
        let not_durable = described(
            "isolet_fleet_not_durable_sandboxes",
            "Sandboxes of the class store on this node without a snapshot in the object store, which \
             nobody can restore",
        )
        .register(registry, Gauge::default());
        let [forwarded, unreachable, lost] = described(
            "isolet_fleet_forwarded_requests",
            "Requests that this node sent to others, by what became of them",
        )
        .family(registry, "result", ["answered", "unreachable", "lost"]);
        let lookups = described(
            "isolet_fleet_owner_lookups",
            "Owners of sandboxes that were read from etcd because this node did not know them",
        )
        .register(registry, Counter::default());
        let [placed_here, placed_elsewhere, placed_nowhere, placed_refused] = described(
            "isolet_fleet_placements",
            "New sandboxes by where this node placed them: on itself, on another node, nowhere, or on \
             a node that refused them for want of room",
        )
        .family(registry, "result", ["here", "elsewhere", "nowhere", "refused"]);
        let skipped = described(
            "isolet_fleet_skipped_snapshots",
            "Snapshots that this node has not restored because a tenant called for an older one",
        )
        .register(registry, Counter::default());
        Self {
            nodes,
            lease_left,
            not_durable,
            forwarded,
            unreachable,
            lost,
            lookups,
            placed_here,
            placed_elsewhere,
            placed_nowhere,
            placed_refused,
            skipped,
        }
    }

    /// Sets the number of nodes in one state.
    pub fn set_nodes(&self, state: &'static str, count: usize) {
        self.nodes.get_or_create(&[("state", state)]).set(whole(count));
    }

    /// Sets how many sandboxes of the class `store` have no snapshot in the object store.
    pub fn set_not_durable(&self, count: usize) {
        self.not_durable.set(whole(count));
    }

    /// Sets for how many seconds this node certainly holds its lease.
    pub fn set_lease_left(&self, seconds: u64) {
        self.lease_left.set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
}
