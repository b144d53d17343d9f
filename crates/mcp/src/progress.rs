//! Progress notifications for clients that ask for them: many abandon a call that is silent for a
//! minute.

use rmcp::{RoleServer, model::ProgressNotificationParam, service::RequestContext};
use std::{convert::Infallible, future::pending, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Interval of notifications. Even those of ten minutes fit the socket buffers of a client that does not
/// read.
const INTERVAL: Duration = Duration::from_secs(2);

/// Sends the seconds that have passed, out of at most `max_ms`; never ends.
pub(crate) async fn notify(
    context: &RequestContext<RoleServer>,
    max_ms: Option<u64>,
) -> Infallible {
    let Some(token) = context.meta.get_progress_token() else { return pending().await };
    let begun = Instant::now();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let told = notification(&begun, max_ms, ProgressNotificationParam::new(token.clone(), 0.0));
        // The call itself notices a client that has disconnected.
        let _ = context.peer.notify_progress(told).await;
    }
}

fn notification(
    begun: &Instant,
    max_ms: Option<u64>,
    mut told: ProgressNotificationParam,
) -> ProgressNotificationParam {
    let passed = begun.elapsed().as_secs_f64();
    told.progress = passed;
    told.total = max_ms.map(|ms| ms as f64 / 1000.0);
    told.with_message(format!("{passed:.0} s"))
}
