//! Telling a client that a call is still being worked on, where it asked for that: many give a call
//! up that says nothing for a minute.

use rmcp::{RoleServer, model::ProgressNotificationParam, service::RequestContext};
use std::{convert::Infallible, future::pending, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often. A client that does not read fills nothing: what is sent of a wait of ten minutes fits
/// the buffers of its connection.
const EVERY: Duration = Duration::from_secs(2);

/// Tells how many seconds have passed, of at most `most_ms`; never ends.
pub(crate) async fn tell(context: &RequestContext<RoleServer>, most_ms: Option<u64>) -> Infallible {
    let Some(token) = context.meta.get_progress_token() else { return pending().await };
    let begun = Instant::now();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is at once.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let told = note(&begun, most_ms, ProgressNotificationParam::new(token.clone(), 0.0));
        // A client that has gone is heard of by the call itself.
        let _ = context.peer.notify_progress(told).await;
    }
}

fn note(
    begun: &Instant,
    most_ms: Option<u64>,
    mut told: ProgressNotificationParam,
) -> ProgressNotificationParam {
    let passed = begun.elapsed().as_secs_f64();
    told.progress = passed;
    told.total = most_ms.map(|ms| ms as f64 / 1000.0);
    told.with_message(format!("{passed:.0} s"))
}
