//! Spreads busy sandboxes over the processors of the machine.

use crate::live::inner::Inner;
use crate::model::blocking::blocking;
use crate::model::state::State;
use isolet_jail::Balancer;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
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
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let measured = Arc::clone(&inner);
        let run = move || {
            let moved = balancer.run(|| running(&measured));
            (balancer, moved)
        };
        let Ok((back, moved)) = blocking(run).await else { return };
        balancer = back;
        if moved > 0 {
            debug!(moved, "busy sandboxes moved to other processors");
        }
    }
}

/// The internal names of the sandboxes that run.
fn running(inner: &Inner) -> Vec<String> {
    let all = inner.registry.all();
    all.iter().filter(|one| one.state() == State::Running).map(|one| one.name.clone()).collect()
}
