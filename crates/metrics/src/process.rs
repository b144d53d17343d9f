//! The standard metrics of the server's own process, read from `/proc` when the metrics are read.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};
use std::fmt;

/// Fields of `/proc/self/stat`, counted from the state, which is field 3 in proc(5).
const UTIME: usize = 11;
const STIME: usize = 12;
const THREADS: usize = 17;
const START_TIME: usize = 19;
const VSIZE: usize = 20;
const RSS: usize = 21;

static BYTES: Unit = Unit::Bytes;
static SECONDS: Unit = Unit::Seconds;

/// Reads the metrics of this process.
#[derive(Debug)]
pub(crate) struct ProcessCollector;

/// What the kernel says about this process at one moment.
struct ProcessUsage {
    cpu_s: f64,
    start_s: f64,
    threads: i64,
    virtual_bytes: i64,
    resident_bytes: i64,
}

impl ProcessUsage {
    fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let boot = std::fs::read_to_string("/proc/stat").ok()?;
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
        Self::parse(&stat, boot.trim().parse().ok()?)
    }

    fn parse(stat: &str, boot_s: f64) -> Option<Self> {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let page = rustix::param::page_size() as i64;
        // The name of the program may contain spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let field = |at: usize| fields.get(at)?.trim().parse::<i64>().ok();
        Some(Self {
            cpu_s: (field(UTIME)? + field(STIME)?) as f64 / ticks,
            start_s: boot_s + field(START_TIME)? as f64 / ticks,
            threads: field(THREADS)?,
            virtual_bytes: field(VSIZE)?,
            resident_bytes: field(RSS)? * page,
        })
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: i64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)
        };
        let bytes = Some(&BYTES);
        if let Some(now) = ProcessUsage::now() {
            gauge("process_threads", "Threads of the server.", None, now.threads)?;
            let help = "Virtual memory of the server.";
            gauge("process_virtual_memory", help, bytes, now.virtual_bytes)?;
            let help = "Resident memory of the server.";
            gauge("process_resident_memory", help, bytes, now.resident_bytes)?;
        }
        // The directory that is being read has a descriptor too.
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            let open = i64::try_from(open.count().saturating_sub(1)).unwrap_or(i64::MAX);
            gauge("process_open_fds", "Open file descriptors of the server.", None, open)?;
        }
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        gauge("process_max_fds", "Limit on open file descriptors.", None, most)?;
        let Some(now) = ProcessUsage::now() else { return Ok(()) };
        let seconds = Some(&SECONDS);
        let start = ConstGauge::new(now.start_s);
        let help = "Start of the server, in seconds since 1970.";
        start.encode(encoder.encode_descriptor(
            "process_start_time",
            help,
            seconds,
            start.metric_type(),
        )?)?;
        let cpu = ConstCounter::new(now.cpu_s);
        let help = "Processor time of the server, in user and system mode.";
        cpu.encode(encoder.encode_descriptor("process_cpu", help, seconds, cpu.metric_type())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_proc_5() {
        let stat = "7 (a) b) S 1 2 3 4 -1 5 6 7 8 9 150 50 0 0 20 0 12 0 1000 4096000 25 18446744073709551615 1\n";
        let read = ProcessUsage::parse(stat, 1000.0).unwrap();
        assert_eq!((read.threads, read.virtual_bytes), (12, 4_096_000));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert!((read.cpu_s - 200.0 / ticks).abs() < 1e-9);
        assert!((read.start_s - (1000.0 + 1000.0 / ticks)).abs() < 1e-9);
        assert_eq!(read.resident_bytes, 25 * rustix::param::page_size() as i64);
        assert!(ProcessUsage::now().is_some_and(|now| now.resident_bytes > 0 && now.threads > 0));
    }
}
