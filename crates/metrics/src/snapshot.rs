//! Gauges that are set when the metrics are read, because counting at every change would cost more.

use crate::labels::{Label, described};
use crate::requests::whole;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The state of the server when the metrics were last read.
#[derive(Debug)]
pub struct Snapshot {
    sandboxes: Family<Label, Gauge>,
    queues: Family<Label, Gauge>,
    sessions: Gauge,
    terminals: Gauge,
    pool_sandboxes: Gauge,
    pool_size: Gauge,
}

impl Snapshot {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let sandboxes = described("isolet_sandboxes", "Sandboxes by state")
            .register(registry, Family::default());
        let queues = described(
            "isolet_queue_depth",
            "Waiting work: sandboxes that the warm pool lacks, launches, jobs of the store",
        )
        .register(registry, Family::default());
        let mut gauge = |name, help| described(name, help).register(registry, Gauge::default());
        Self {
            sandboxes,
            queues,
            sessions: gauge("isolet_sessions", "Sessions of all sandboxes, also of those asleep"),
            terminals: gauge("isolet_terminals", "Running terminals of sessions"),
            pool_sandboxes: gauge(
                "isolet_warm_pool_sandboxes",
                "Sandboxes of the plain kind that wait in the warm pool",
            ),
            pool_size: gauge("isolet_warm_pool_size", "Configured size of the warm pool"),
        }
    }

    /// Sets the number of sandboxes in one state.
    pub fn set_sandboxes(&self, state: &'static str, count: usize) {
        self.sandboxes.get_or_create(&[("state", state)]).set(whole(count));
    }

    /// Sets the number of entries that wait in a queue.
    pub fn set_queue(&self, queue: &'static str, count: usize) {
        self.queues.get_or_create(&[("queue", queue)]).set(whole(count));
    }

    /// Sets the numbers of sessions and of their running terminals.
    pub fn set_sessions(&self, sessions: usize, terminals: usize) {
        self.sessions.set(whole(sessions));
        self.terminals.set(whole(terminals));
    }

    /// Sets the number of waiting sandboxes of the warm pool and its configured size.
    pub fn set_warm_pool(&self, waiting: usize, size: usize) {
        self.pool_sandboxes.set(whole(waiting));
        self.pool_size.set(whole(size));
    }
}
