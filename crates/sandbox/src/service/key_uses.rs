//! Records when keys were last used, and deletes the records of keys that ended long ago. A request only
//! notes the time of its use in memory.

use crate::live::inner::Inner;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// The time between two writes, and so the precision that other processes see.
const INTERVAL: Duration = Duration::from_mins(1);

/// Records the uses of each interval. Runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        record(&inner).await;
        forget_ended(&inner).await;
    }
}

async fn forget_ended(inner: &Inner) {
    let keys = inner.keys.clone();
    let is_alone = inner.config.fleet.is_none();
    let forget = async || Ok::<_, Error>(blocking(move || keys.forget_ended(is_alone)).await??);
    match forget().await {
        Ok(0) => {}
        Ok(count) => info!(count, "deleted the records of keys that ended more than a week ago"),
        Err(error) => warn!(%error, "the records of keys that ended cannot be deleted"),
    }
}

/// Records the uses since the last call.
pub(crate) async fn record(inner: &Inner) {
    let uses = inner.keys.unrecorded_uses();
    if uses.is_empty() {
        return;
    }
    match inner.store.record_key_uses(uses.clone()).await {
        Ok(()) => inner.keys.note_recorded(&uses),
        Err(error) => {
            warn!(%error, "the last use of keys could not be recorded; trying again in a minute");
        }
    }
}
