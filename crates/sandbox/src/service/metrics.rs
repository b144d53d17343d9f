//! The metrics of the server. Gauges that need a count are set when the metrics are read.

use crate::live::warm_pool;
use crate::model::state::State;
use crate::service::Service;
use isolet_metrics::Metrics;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every state in which a sandbox has an entry.
const STATES: [State; 7] = [
    State::Creating,
    State::Running,
    State::Unreachable,
    State::Paused,
    State::Sleeping,
    State::Failed,
    State::Destroying,
];

impl Service {
    /// The metrics, whose gauges are those of the last [`Service::sample_metrics`].
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// Sets the gauges of sandboxes, sessions, queues, the warm pool and tenants. Visits every
    /// sandbox once.
    pub fn sample_metrics(&self) {
        let inner = &self.inner;
        let mut states = [0; STATES.len()];
        let mut tenants: BTreeMap<&str, usize> = BTreeMap::new();
        let mut sessions = 0;
        let mut terminals = 0;
        let entries = inner.registry.all();
        for entry in &entries {
            let state = entry.state();
            if let Some(at) = STATES.iter().position(|one| *one == state) {
                states[at] += 1;
            }
            if !state.visible() {
                continue;
            }
            *tenants.entry(entry.tenant.as_str()).or_default() += 1;
            let counts = entry.sessions.counts();
            sessions += counts.sessions;
            terminals += counts.terminals;
        }
        let snapshot = &inner.metrics.snapshot;
        for (state, count) in STATES.into_iter().zip(states) {
            snapshot.set_sandboxes(state.word(), count);
        }
        inner.metrics.tenants.set_sandboxes(tenants.into_iter());
        snapshot.set_sessions(sessions, terminals);
        let size = inner.config.warm_pool_size.min(warm_pool::READY_MAX) as usize;
        let waiting = inner.ready.count();
        snapshot.set_warm_pool(waiting, size);
        snapshot.set_queue("warm_pool", size.saturating_sub(waiting));
        snapshot.set_queue("launcher", inner.launch.queued());
        snapshot.set_queue("store", inner.store.queued());
    }
}
