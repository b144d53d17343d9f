//! Spreads busy sandboxes over the processors of the machine.

use crate::live::inner::Inner;
use crate::service::repeat::repeat;
use isolet_jail::Balancer;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// The time between two measurements. A sandbox is moved after the second that finds it busy.
const INTERVAL: Duration = Duration::from_secs(1);

/// Measures after each interval. Runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    if !inner.launch.missing().is_empty() {
        return;
    }
    let Some(mut balancer) = Balancer::new(&inner.jail) else {
        warn!(
            "the cpuset controller is missing or not delegated: programs in sandboxes count all processors of this machine"
        );
        return;
    };
    let balance = move || {
        let moved = balancer.run(|| inner.registry.running_names());
        if moved > 0 {
            debug!(moved, "busy sandboxes moved to other processors");
        }
    };
    repeat(INTERVAL, balance).await;
}
