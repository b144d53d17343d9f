//! Reports what is in use on this node.

pub(crate) mod limits;

use crate::blocking::blocking;
use crate::node::Node;
use isolet_cluster::model::{BootTime, IMAGES_MAX, Load, NodeState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How often the load is looked at. It is written only if it has changed noticeably.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Digits of an image's digest that are reported.
const DIGITS: usize = 16;

/// A state of a node, and the word for it in metrics.
struct NamedState {
    state: NodeState,
    word: &'static str,
}

/// Every state of a node.
const STATES: [NamedState; 4] = [
    NamedState { state: NodeState::Ready, word: "ready" },
    NamedState { state: NodeState::Suspect, word: "suspect" },
    NamedState { state: NodeState::Lost, word: "lost" },
    NamedState { state: NodeState::Dead, word: "dead" },
];

/// Reports the load until the task is aborted.
pub(crate) async fn keep(node: Arc<Node>) {
    let mut clock = interval(LOOK_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        node.report_load().await;
        node.set_gauges();
    }
}

impl Node {
    /// Reports the load now.
    pub(crate) async fn report_load(&self) {
        let used = self.service.node_use();
        let data_dir = self.service.data_dir().to_owned();
        let disk = blocking(move || rustix::fs::statvfs(&data_dir)).await;
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
            is_full: self.service.is_full(),
            pushes_stuck: self.service.pushes().is_stuck,
            images,
        };
        self.with_membership(|membership| membership.set_load(load));
    }
}

impl Node {
    fn set_gauges(&self) {
        let metrics = &self.service.metrics().fleet;
        let mut counts = [0; STATES.len()];
        for member in self.members.borrow().iter() {
            if let Some(at) = STATES.iter().position(|known| known.state == member.state) {
                counts[at] += 1;
            }
        }
        for (known, count) in STATES.iter().zip(counts) {
            metrics.set_nodes(known.word, count);
        }
        metrics.set_not_durable(self.service.pushes().not_durable);
        self.with_membership(|membership| {
            let left = membership.deadline().borrow().at.since(BootTime::now());
            metrics.set_lease_left(left.as_secs());
        });
    }
}

/// A digest as nodes report it.
pub(crate) fn short_digest(digest: &str) -> String {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    hex.chars().take(DIGITS).collect()
}
