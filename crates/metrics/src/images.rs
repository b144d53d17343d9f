//! Pulls and imports of images.

use crate::histogram::DurationHistogram;
use crate::labels::described;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::{Registry, Unit};

/// Pulls and imports. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct ImageMetrics {
    /// How long successful pulls took.
    pub pulls: DurationHistogram,
    /// How long failed pulls took until they failed.
    pub failed_pulls: DurationHistogram,
    /// Bytes of layers that registries sent, also for pulls that failed.
    pub pulled_bytes: Counter,
    /// Bytes of layers that other nodes sent to this one, also for transfers that failed.
    pub received_bytes: Counter,
    /// Bytes of layers that this node sent to others.
    pub sent_bytes: Counter,
    /// Layers that were copied from another node.
    pub copied_layers: Counter,
    /// Layers whose copy from another node failed.
    pub failed_layers: Counter,
    /// Imports of archives that succeeded.
    pub imports: Counter,
    /// Imports of archives that failed.
    pub failed_imports: Counter,
}

impl ImageMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let [pulls, failed_pulls] =
            described("isolet_image_pull_duration", "Time of image pulls from registries")
                .unit(Unit::Seconds)
                .family(registry, "result", ["success", "failure"]);
        let pulled_bytes =
            described("isolet_image_pulled", "Compressed bytes of layers that registries sent")
                .unit(Unit::Bytes)
                .counter(registry);
        let [received_bytes, sent_bytes] = described(
            "isolet_image_peer",
            "Compressed bytes of layers that were transferred between nodes of the fleet",
        )
        .unit(Unit::Bytes)
        .family(registry, "direction", ["received", "sent"]);
        let [copied_layers, failed_layers] = described(
            "isolet_image_peer_layers",
            "Layers that this node copied, or tried to copy, from another node",
        )
        .family(registry, "result", ["success", "failure"]);
        let [imports, failed_imports] = described(
            "isolet_image_imports",
            "Imports of image archives",
        )
        .family(registry, "result", ["success", "failure"]);
        Self {
            pulls,
            failed_pulls,
            pulled_bytes,
            received_bytes,
            sent_bytes,
            copied_layers,
            failed_layers,
            imports,
            failed_imports,
        }
    }
}
