//! Records when keys were last used. A request only notes the time in memory.

use crate::live::inner::Inner;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// The time between two writes, and so the precision that other processes see.
const INTERVAL: Duration = Duration::from_mins(1);

/// Records the uses of each interval. Runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        record(&inner).await;
    }
}

/// Records the uses since the last call.
pub(crate) async fn record(inner: &Inner) {
    let uses = inner.keys.unrecorded_uses();
    if uses.is_empty() {
        return;
    }
    if let Err(error) = inner.store.record_key_uses(uses).await {
        warn!(%error, "the last use of keys could not be recorded; trying again in a minute");
    }
}
