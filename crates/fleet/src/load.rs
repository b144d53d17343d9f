//! Reports what is in use on this node.

use crate::node::Node;
use isolet_cluster::model::{IMAGES_MAX, Load};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How often the load is looked at. It is written only if it has changed noticeably.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Digits of an image's digest that are reported.
const DIGITS: usize = 16;

/// Reports the load until the task is aborted.
pub(crate) async fn keep(node: Arc<Node>) {
    let mut clock = interval(LOOK_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        node.report_load();
    }
}

impl Node {
    /// Reports the load now.
    pub(crate) fn report_load(&self) {
        let used = self.service.node_use();
        let disk = rustix::fs::statvfs(self.service.data_dir());
        let disk_used_mib = disk.map_or(0, |disk| {
            disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize) >> 20
        });
        let digests = self.service.image_digests();
        let images = digests.iter().take(IMAGES_MAX).map(|digest| short_digest(digest)).collect();
        let load = Load {
            memory_reserved_mib: used.memory_reserved_mib,
            disk_used_mib,
            sandboxes: used.sandboxes,
            running: used.running,
            images,
        };
        self.with_membership(|membership| membership.set_load(load));
    }
}

/// A digest as nodes report it.
pub(crate) fn short_digest(digest: &str) -> String {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    hex.chars().take(DIGITS).collect()
}
