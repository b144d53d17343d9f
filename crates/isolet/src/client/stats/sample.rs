//! What a sandbox has used, and the table of it.

use crate::client::list::text;
use crate::client::output::size::binary;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Instant;

/// Counters of a sandbox at one moment.
pub(super) struct Sample {
    at: Instant,
    record: Value,
}

/// What a sandbox uses: counters, and the processor time between two samples.
pub(super) struct Usage {
    /// Percent of one core. `None` after only one sample.
    cpu_percent: Option<f64>,
    record: Value,
}

impl Sample {
    /// Read just now.
    pub(super) fn new(record: &Value) -> Self {
        Self { at: Instant::now(), record: record.clone() }
    }

    /// The usage since an earlier measurement of the same sandbox.
    pub(super) fn since(&self, before: &[Self]) -> Usage {
        let earlier = before.iter().find(|one| one.record["id"] == self.record["id"]);
        let cpu_percent = earlier.and_then(|earlier| {
            let ms = (self.at - earlier.at).as_secs_f64() * 1000.0;
            let used = cpu_ms(&self.record)? - cpu_ms(&earlier.record)?;
            // A sandbox that slept in between begins to count again.
            (ms > 0.0).then(|| (used.max(0.0) / ms * 1000.0).round() / 10.0)
        });
        Usage { cpu_percent, record: self.record.clone() }
    }
}

fn cpu_ms(record: &Value) -> Option<f64> {
    record["usage"]["cpu_ms"].as_f64()
}

impl Usage {
    /// For scripts.
    pub(super) fn json(&self) -> Value {
        let record = &self.record;
        let usage = &record["usage"];
        json!({
            "id": record["id"],
            "state": record["state"],
            "cpu_percent": self.cpu_percent,
            "cpu_limit_millis": record["cpu_millis"],
            "memory_bytes": usage["memory_bytes"],
            "memory_limit_bytes": limit(&record["memory_mib"]),
            "pids": usage["pids"],
            "pids_limit": record["pids"],
            "disk_bytes": usage["disk_bytes"],
            "disk_limit_bytes": limit(&record["disk_mib"]),
            "network_received_bytes": usage["network"]["received_bytes"],
            "network_sent_bytes": usage["network"]["sent_bytes"],
        })
    }

    /// The cells of its row.
    fn cells(&self) -> [String; 8] {
        let record = &self.record;
        let usage = &record["usage"];
        let memory = usage["memory_bytes"].as_u64();
        let memory_limit = limit(&record["memory_mib"]).as_u64();
        let share = match (memory, memory_limit) {
            (Some(used), Some(limit @ 1..)) => {
                format!("{:.1}%", used as f64 / limit as f64 * 100.0)
            }
            _ => "-".to_owned(),
        };
        let network = &usage["network"];
        [
            text(&record["id"]),
            text(&record["state"]),
            self.cpu_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1}%")),
            pair(memory, memory_limit),
            share,
            usage["pids"].as_u64().map_or_else(|| "-".to_owned(), |pids| pids.to_string()),
            pair(usage["disk_bytes"].as_u64(), limit(&record["disk_mib"]).as_u64()),
            pair(network["received_bytes"].as_u64(), network["sent_bytes"].as_u64()),
        ]
    }
}

/// A limit in MiB as bytes; null for none.
fn limit(mib: &Value) -> Value {
    mib.as_u64()
        .filter(|mib| *mib > 0)
        .map_or(Value::Null, |mib| json!(mib.saturating_mul(1 << 20)))
}

fn pair(one: Option<u64>, other: Option<u64>) -> String {
    let of = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), binary);
    if one.is_none() { "-".to_owned() } else { format!("{} / {}", of(one), of(other)) }
}

/// The table, with a line for each sandbox.
pub(super) fn table(all: &[Usage], colours: bool) -> String {
    let head =
        ["ID", "STATE", "CPU", "MEMORY / LIMIT", "MEM", "PIDS", "DISK / LIMIT", "NET IN / OUT"];
    let rows: Vec<[String; 8]> = all.iter().map(Usage::cells).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(head[column].len())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let mut line = String::new();
        for (column, (cell, width)) in cells.iter().zip(widths.iter().copied()).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = match column {
                0 | 1 => write!(line, "{gap}{cell:<width$}"),
                _ => write!(line, "{gap}{cell:>width$}"),
            };
        }
        line
    };
    let first = line(&head);
    let mut table = if colours { format!("\x1b[1m{first}\x1b[0m\n") } else { first + "\n" };
    for row in &rows {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        table.push_str(line(&cells).trim_end());
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(after: Duration, start: Instant, cpu_ms: f64) -> Sample {
        let record = json!({"id": "demo", "state": "running", "cpu_millis": 2000, "memory_mib": 1024,
            "pids": 512, "disk_mib": 0, "usage": {"cpu_ms": cpu_ms, "memory_bytes": 268_435_456_u64,
            "pids": 3}});
        Sample { at: start + after, record }
    }

    #[test]
    fn cpu_is_the_share_of_a_core_between_two_samples() {
        let start = Instant::now();
        let before = [sample(Duration::ZERO, start, 1000.0)];
        let usage = sample(Duration::from_secs(2), start, 4000.0).since(&before);
        assert_eq!(usage.cpu_percent, Some(150.0));
        assert_eq!(usage.json()["memory_limit_bytes"], 1_073_741_824_u64);
        assert!(usage.json()["disk_bytes"].is_null() && usage.json()["disk_limit_bytes"].is_null());
        let restarted = sample(Duration::from_secs(3), start, 10.0).since(&before);
        assert_eq!(restarted.cpu_percent, Some(0.0));
        assert_eq!(sample(Duration::ZERO, start, 1.0).since(&[]).cpu_percent, None);
    }

    #[test]
    fn a_table_has_aligned_columns_and_a_dash_for_what_is_missing() {
        let start = Instant::now();
        let usage = sample(Duration::ZERO, start, 1.0).since(&[]);
        let table = table(&[usage], false);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0].find("CPU").map(|at| at + 3), lines[1].find('-').map(|at| at + 1));
        assert!(lines[1].contains("256.0 MiB / 1.0 GiB  25.0%"), "{table}");
        assert!(lines[1].ends_with('-'), "{table}");
    }
}
