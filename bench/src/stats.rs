//! Medians, tails and ratios.

use std::time::Duration;

/// Times of one variant, in microseconds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e6);
    }

    /// The quantile `share` (0 to 1) of the times; NaN if there are none.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1) as f64;
        sorted.get((last * share).round() as usize).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Formats microseconds, as milliseconds if there are many.
pub(crate) fn show(micros: f64) -> String {
    match micros {
        value if value.is_nan() => "-".to_owned(),
        value if value >= 10_000.0 => format!("{:.1} ms", value / 1000.0),
        value => format!("{value:.0} µs"),
    }
}

/// Prints one row per variant: median, p99, and the ratio of its median to that of the first row.
pub(crate) fn rows(title: &str, variants: &[(&str, Times)]) {
    println!("\n{title}");
    println!("| variant | p50 | p99 | p99/p50 | ratio to {} | n |", variants[0].0);
    println!("|---|---|---|---|---|---|");
    let base = variants[0].1.median();
    for (name, times) in variants {
        let median = times.median();
        let tail = times.at(0.99);
        println!(
            "| {name} | {} | {} | {:.1} | {:.2} | {} |",
            show(median),
            show(tail),
            tail / median,
            median / base,
            times.count()
        );
    }
}

/// The load averages of the machine.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
