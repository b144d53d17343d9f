//! A histogram of durations that is updated without a lock. The histogram of `prometheus-client`
//! takes one for each observation, which every command of every sandbox would share.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of buckets, without the last one, which has no upper bound.
const BOUNDS: usize = 20;
/// The inclusive upper bounds of the buckets, in nanoseconds: 100 µs to 30 minutes. A commit takes a
/// fraction of a millisecond, a create some milliseconds, and a command or a pull may take minutes.
const BOUNDS_NS: [u64; BOUNDS] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    300_000_000_000,
    1_800_000_000_000,
];
/// A longer duration counts as this one, because an agent that a tenant controls reports durations:
/// the sum stays below its limit for 200,000 such reports.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Counts durations in buckets. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct DurationHistogram(Arc<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    /// Durations in each bucket and not in an earlier one.
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

impl DurationHistogram {
    /// Adds one duration to its bucket.
    pub fn observe(&self, duration: Duration) {
        let ns = duration.min(LONGEST).as_nanos() as u64;
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.0.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}

impl TypedMetric for DurationHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for DurationHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = BOUNDS_NS.iter().map(|ns| Duration::from_nanos(*ns).as_secs_f64());
        let counts = self.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
        // The count is that of the buckets, whatever is added while this reads them.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_nanos(self.0.sum_ns.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let histogram = DurationHistogram::default();
        let mut registry = Registry::default();
        registry.register("x", "X", histogram.clone());
        histogram.observe(Duration::from_micros(100));
        histogram.observe(Duration::from_nanos(100_001));
        histogram.observe(Duration::from_millis(40));
        histogram.observe(Duration::MAX);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "x_bucket{le=\"0.0001\"} 1",
            "x_bucket{le=\"0.00025\"} 2",
            "x_bucket{le=\"0.025\"} 2",
            "x_bucket{le=\"0.05\"} 3",
            "x_bucket{le=\"1800.0\"} 3",
            "x_bucket{le=\"+Inf\"} 4",
            "x_count 4",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in:\n{text}");
        }
        assert!(BOUNDS_NS.is_sorted());
    }
}
