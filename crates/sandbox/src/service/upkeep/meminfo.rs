//! Keeps `/proc/meminfo` in running sandboxes up to date.

use crate::live::inner::Inner;
use crate::service::repeat::repeat;
use isolet_jail::MeminfoRefresher;
use std::sync::Arc;
use std::time::Duration;

/// How far `/proc/meminfo` in a sandbox may lag behind what its programs use.
const INTERVAL: Duration = Duration::from_secs(1);

/// Refreshes after each interval. Runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    if !inner.launch.missing().is_empty() {
        return;
    }
    let Some(mut refresher) = MeminfoRefresher::new(&inner.jail) else { return };
    let refresh = move || {
        refresher.run(|| inner.registry.running_names());
    };
    repeat(INTERVAL, refresh).await;
}
