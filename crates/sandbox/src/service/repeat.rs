//! Work that the server repeats.

use crate::model::blocking::blocking;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Runs `work` on a thread that may block: now, and again after each `pause` until the server stops.
pub(super) async fn repeat(pause: Duration, mut work: impl FnMut() + Send + 'static) {
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let run = move || {
            work();
            work
        };
        let Ok(back) = blocking(run).await else { return };
        work = back;
    }
}
