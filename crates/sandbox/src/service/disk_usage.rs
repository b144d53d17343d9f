//! Counts what the files of tenants with a disk quota take on the server's disk.

use crate::live::inner::Inner;
use crate::model::blocking::blocking;
use crate::model::ids::TenantId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// The time between two counts.
const INTERVAL: Duration = Duration::from_secs(5);

/// Counts after each interval if any tenant has a quota. Runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    if !inner.quotas.any() {
        return;
    }
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let counting = Arc::clone(&inner);
        if let Ok(used) = blocking(move || count(&counting)).await {
            inner.quotas.set_used(used);
        }
    }
}

/// The bytes of all tenants with a quota. Blocks.
fn count(inner: &Inner) -> HashMap<TenantId, u64> {
    let mut used: HashMap<TenantId, u64> = HashMap::new();
    for entry in inner.registry.all() {
        if inner.quotas.counts(&entry.tenant) {
            let bytes = isolet_jail::disk_bytes(&inner.jail, &entry.name).unwrap_or(0);
            *used.entry(entry.tenant.clone()).or_default() += bytes;
        }
    }
    for snapshot in inner.snapshots.all() {
        if inner.quotas.counts(&snapshot.tenant) {
            *used.entry(snapshot.tenant.clone()).or_default() += snapshot.body.size_bytes;
        }
    }
    used
}
