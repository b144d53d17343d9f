//! Traffic of a sandbox: the kernel counts it per veth pair, and the sandbox's record contains the
//! sums of earlier pairs.

use serde::{Deserialize, Serialize};

/// What went between a sandbox and the world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes that the sandbox sent, heads of packets included.
    pub sent_bytes: u64,
    /// Bytes that it received.
    pub received_bytes: u64,
    /// Packets that it sent.
    pub sent_packets: u64,
    /// Packets that it received.
    pub received_packets: u64,
    /// Packets, connections and lookups that were refused.
    pub refused: u64,
}

impl Traffic {
    /// Both together.
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
