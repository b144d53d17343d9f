//! Reads the traffic counters of a sandbox's veth pair.

use crate::live::egress::Egress;
use crate::live::entry::SandboxEntry;
use crate::model::blocking::blocking;
use crate::model::network::traffic::Traffic;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of the counters' query, which delays the description of a sandbox.
const COUNT_WAIT: Duration = Duration::from_millis(500);

impl Egress {
    /// Traffic since the veth pair was created; `None` if there is no veth pair that can be
    /// queried.
    pub(crate) async fn traffic(&self, entry: &SandboxEntry) -> Option<Traffic> {
        let (links, id) = self.standing(entry).await?;
        let asked = timeout(COUNT_WAIT, blocking(move || links.counters(id)));
        let counted = asked.await.ok()?.ok()?.ok()?;
        Some(Traffic {
            sent_bytes: counted.out_bytes,
            received_bytes: counted.back_bytes,
            sent_packets: counted.out_packets,
            received_packets: counted.back_packets,
            refused: counted.refused,
        })
    }
}
