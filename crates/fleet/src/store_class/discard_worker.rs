//! Repeats what the object store has not deleted at once, and deletes what may be deleted by now.

use crate::error::unavailable;
use crate::node::Node;
use crate::store_class::discards;
use isolet_cluster::ownership::Discarded;
use isolet_http::fleet::FleetError;
use tracing::{info, warn};

/// Lists of one page.
const PAGE: u16 = 100;
/// Maximum number of lists that one look works through.
const LISTS_MAX: usize = 1000;

impl Node {
    /// Deletes what may be deleted by now, behind where the last look ended. The first failure ends the look:
    /// the store is probably away.
    pub(super) async fn discard_due(
        &self,
        after: &mut Option<Discarded>,
    ) -> Result<(), FleetError> {
        let now_ms = isolet_clock::now_ms();
        let mut is_agreed = false;
        let mut done = 0;
        while done < LISTS_MAX {
            let page = self.ownership.discarded(now_ms, after.as_ref(), PAGE).await;
            let page = page.map_err(|error| unavailable(&error))?;
            let is_last = page.len() < usize::from(PAGE);
            for discarded in page {
                if discarded.not_before_ms > discards::AT_ONCE && !is_agreed {
                    if !self.clock_agrees().await {
                        *after = None;
                        return Ok(());
                    }
                    is_agreed = true;
                }
                let deleted = discards::delete(&self.service, &self.ownership, &discarded).await;
                let sandbox = discarded.sandbox.clone();
                *after = Some(discarded);
                done += 1;
                match deleted {
                    Ok(()) => info!(%sandbox, "its snapshots are deleted from the store"),
                    Err(reason) => {
                        warn!(%sandbox, reason, "its snapshots are not deleted from the store yet; it is tried again");
                        return Ok(());
                    }
                }
            }
            if is_last {
                *after = None;
                break;
            }
        }
        Ok(())
    }
}
