//! Deletes expired answers of idempotency keys, and gives their space back to the disk. Both happen in
//! small steps with pauses, in which other writes have their turn.

use crate::live::inner::Inner;
use isolet_store::{EXPIRED_STEP, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::warn;

/// The time between two checks.
const INTERVAL: Duration = Duration::from_secs(10);
/// The time between two steps.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs until the server stops.
pub(crate) async fn delete_expired(inner: Arc<Inner>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = clean_up(&inner).await {
            warn!(%error, "expired answers of idempotency keys cannot be deleted; trying again");
        }
    }
}

async fn clean_up(inner: &Inner) -> Result<(), Error> {
    while inner.store.delete_expired_answers().await? == EXPIRED_STEP {
        sleep(PAUSE).await;
    }
    while inner.store.shrink().await? {
        sleep(PAUSE).await;
    }
    Ok(())
}
