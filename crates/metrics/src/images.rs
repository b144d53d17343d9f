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
        let [imports, failed_imports] = described(
            "isolet_image_imports",
            "Imports of image archives",
        )
        .family(registry, "result", ["success", "failure"]);
        Self { pulls, failed_pulls, pulled_bytes, imports, failed_imports }
    }
}
