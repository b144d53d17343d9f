//! Progress notifications for clients that request them: many clients abandon a call after a minute of
//! silence.

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Interval of notifications. Even the notifications of ten minutes fit into the socket buffers of a client
/// that does not read.
const INTERVAL: Duration = Duration::from_secs(2);

/// Sends the elapsed seconds, and `max_ms` as the total, until the future is dropped.
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
        let update =
            notification(&begun, max_ms, ProgressNotificationParam::new(token.clone(), 0.0));
        // The call itself notices a client that has disconnected.
        let _ = context.peer.notify_progress(update).await;
    }
}

fn notification(
    begun: &Instant,
    max_ms: Option<u64>,
    mut update: ProgressNotificationParam,
) -> ProgressNotificationParam {
    let passed = begun.elapsed().as_secs_f64();
    update.progress = passed;
    update.total = max_ms.map(|ms| ms as f64 / 1000.0);
    update.with_message(format!("{passed:.0} s"))
}
