//! The records in SQLite.

use crate::histogram::DurationHistogram;
use crate::labels::described;
use prometheus_client::registry::{Registry, Unit};

/// Durations of the jobs on the store's thread, without their time in the queue. Clones share the
/// counts.
#[derive(Debug, Clone, Default)]
pub struct StoreMetrics {
    /// How long jobs took that only read.
    pub reads: DurationHistogram,
    /// Jobs that write, with their commit.
    pub writes: DurationHistogram,
}

impl StoreMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let [reads, writes] = described(
            "isolet_store_duration",
            "Time that SQLite takes for a job of the store, without its time in the queue",
        )
        .unit(Unit::Seconds)
        .family(registry, "operation", ["read", "write"]);
        Self { reads, writes }
    }
}
