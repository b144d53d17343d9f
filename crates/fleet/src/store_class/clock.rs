//! Whether the time of day of this node can be relied on.
//!
//! Leases and epochs need no time of day. The ends of lifetimes do, and a node whose clock is wrong would
//! delete what another one would keep. So it compares its clock with that of the object store first.

use crate::node::Node;
use std::sync::atomic::Ordering;
use tracing::{info, warn};

impl Node {
    /// Whether the clock of this node agrees with that of the object store. The log says it once if it does
    /// not, or if the store cannot say.
    pub(crate) async fn clock_agrees(&self) -> bool {
        let reported = &self.clock_disagrees;
        match self.service.check_clock().await {
            Ok(()) => {
                if reported.swap(false, Ordering::Relaxed) {
                    info!("the clock of this node agrees with that of the object store again");
                }
                true
            }
            Err(reason) => {
                if !reported.swap(true, Ordering::Relaxed) {
                    warn!(reason, "this node ends no sandbox that only the object store has");
                }
                false
            }
        }
    }
}
