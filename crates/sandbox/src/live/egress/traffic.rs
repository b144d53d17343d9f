//! Counters of the kernel on a sandbox's veth pair.

use crate::{
    live::{egress::Egress, entry::Entry},
    model::{blocking::blocking, network::traffic::Traffic},
};
use std::time::Duration;
use tokio::time::timeout;

/// How long the answer to what was counted is waited for: it holds up a record that is asked for.
const COUNT_WAIT: Duration = Duration::from_millis(500);

impl Egress {
    /// What went over its link since that was made; `None`: it has none that could be asked.
    pub(crate) async fn traffic(&self, entry: &Entry) -> Option<Traffic> {
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
