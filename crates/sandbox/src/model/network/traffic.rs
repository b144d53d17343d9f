//! Network traffic of a sandbox. The kernel counts it for each veth pair, and the sandbox's record
//! holds the totals of earlier pairs.

use serde::{Deserialize, Serialize};

/// Network traffic of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes that the sandbox sent, including packet headers.
    pub sent_bytes: u64,
    /// Bytes that the sandbox received.
    pub received_bytes: u64,
    /// Packets that the sandbox sent.
    pub sent_packets: u64,
    /// Packets that the sandbox received.
    pub received_packets: u64,
    /// Number of packets, connections and lookups that were denied.
    pub refused: u64,
}

impl Traffic {
    /// The sum of both.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_add(other.sent_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
            sent_packets: self.sent_packets.saturating_add(other.sent_packets),
            received_packets: self.received_packets.saturating_add(other.received_packets),
            refused: self.refused.saturating_add(other.refused),
        }
    }
}
