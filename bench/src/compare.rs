//! Compares old and new programs: runs the same commands on both in turns, and prints ratios of their times.
//!
//! Noise of the machine lasts longer than a command, so the two sides alternate command by command,
//! and each round begins with the other side. A round gives one ratio of
//! medians per row; the confidence interval is that of the mean of their logarithms (Student's t).

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::socket::SocketShell;
use crate::stats::{Times, show};
use anyhow::{Result, ensure};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Commands of each side in a round.
const COMMANDS: usize = 200;
/// Creates of each side in a round.
const CREATES: usize = 12;
/// The rest before each create, so that the server has finished earlier work.
const REST: Duration = Duration::from_millis(20);
/// Warm-up runs of each side and row that are not counted.
const WARM: usize = 20;
/// Runs of each side in a round that carry 100 MB of output.
const BULKS: usize = 1;
/// Bytes of one bulk output. One JSON answer holds at most 64 MiB, so 100 MB are two answers.
const BULK_BYTES: usize = 50_000_000;
/// Writes the bulk output: lines with quotes, tabs and characters of two bytes, as JSON escapes them.
const BULK: &str =
    r#"yes $'"quoted"\t0123456789 \u00fc abcdefghijklmnopqrstuvwxyz' | head -c 50000000"#;

/// Compare two builds: `:` over WebSocket and HTTP, create to first output, 100 MB of output in
/// JSON, and system calls.
#[derive(Args)]
pub(crate) struct Compare {
    /// Directory of the old isolet, isolet-launcher, isolet-agent and isolet-egress-proxy.
    old: PathBuf,
    /// Directory of the new programs.
    new: PathBuf,
    /// Number of rounds, at least 2. Each gives one ratio; the confidence interval is over rounds.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Run this program, both servers and their sandboxes on this core alone. Less noisy
    /// if other work runs on the machine.
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Number of commands over which `strace` counts system calls; 0 to skip the counting.
    #[arg(long, value_name = "N", default_value_t = 500)]
    calls: usize,
}

impl Compare {
    /// A comparison on all cores, without system calls.
    pub(crate) fn of(old: PathBuf, new: PathBuf, rounds: usize) -> Self {
        Self { old, new, rounds, core: None, calls: 0 }
    }
}

/// One row of the table: a measurement of both sides.
struct Row {
    name: &'static str,
    /// Times of the old and of the new programs.
    times: [Times; 2],
    /// For each round, the ratio of the new median to the old one.
    ratios: Vec<f64>,
}

/// One build and a server that runs it.
struct Side {
    http: HttpClient,
    shell: SocketShell,
    /// Ends with its sandboxes when the side is dropped.
    _server: BenchServer,
}

impl Side {
    fn start(programs: &Path) -> Result<Self> {
        let server = BenchServer::start(programs)?;
        let mut http = HttpClient::connect(&server)?;
        http.create("compare")?;
        http.session("compare", &format!("{BULK} > bulk"))?;
        let shell = SocketShell::open(&server, "compare", false)?;
        Ok(Self { http, shell, _server: server })
    }

    fn command_by_socket(&mut self) -> Result<Duration> {
        timed(|| self.shell.run(":"), 0)
    }

    fn command_by_http(&mut self) -> Result<Duration> {
        timed(|| self.http.session("compare", ":"), 0)
    }

    fn create(&mut self) -> Result<Duration> {
        std::thread::sleep(REST);
        let time = timed(|| self.http.session("created", "echo ready"), 6)?;
        self.http.delete("created")?;
        Ok(time)
    }

    fn bulk_as_answer(&mut self) -> Result<Duration> {
        self.bulk("application/json")
    }

    fn bulk_as_events(&mut self) -> Result<Duration> {
        self.bulk("text/event-stream")
    }

    /// Receives 100 MB of output and discards it unparsed.
    fn bulk(&mut self, accept: &str) -> Result<Duration> {
        let begun = Instant::now();
        for _ in 0..2 {
            let count = self.http.discard_output("compare", "cat bulk", accept)?;
            ensure!(count > BULK_BYTES, "{count} bytes of {accept}");
        }
        Ok(begun.elapsed())
    }
}

fn timed(work: impl FnOnce() -> Result<usize>, bytes: usize) -> Result<Duration> {
    let begun = Instant::now();
    let count = work()?;
    let time = begun.elapsed();
    ensure!(count == bytes, "{count} bytes of output");
    Ok(time)
}

/// A measured step of one side, its name, and its number of runs in a round.
type MeasuredStep = (&'static str, fn(&mut Side) -> Result<Duration>, usize);

const STEPS: [MeasuredStep; 5] = [
    ("`:` over WebSocket", Side::command_by_socket, COMMANDS),
    ("`:` over HTTP", Side::command_by_http, COMMANDS),
    ("create to first output", Side::create, CREATES),
    ("100 MB as JSON answers", Side::bulk_as_answer, BULKS),
    ("100 MB as server-sent events", Side::bulk_as_events, BULKS),
];

pub(crate) fn run(compare: &Compare) -> Result<()> {
    ensure!(compare.rounds >= 2, "a confidence interval needs at least 2 rounds");
    if let Some(core) = compare.core {
        ensure!(core < CpuSet::MAX_CPU, "core {core} does not exist");
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only)?;
    }
    println!("load {}", crate::stats::load());
    let mut sides = [Side::start(&compare.old)?, Side::start(&compare.new)?];
    let mut rows = Vec::new();
    for (name, ..) in STEPS {
        rows.push(Row { name, times: Default::default(), ratios: Vec::new() });
    }
    for (_, step, count) in STEPS {
        for side in &mut sides {
            (0..count.min(WARM)).try_for_each(|_| step(side).map(drop))?;
        }
    }
    for round in 0..compare.rounds {
        for ((_, step, count), row) in STEPS.iter().zip(&mut rows) {
            one_round(&mut sides, *step, *count, round % 2, row)?;
        }
    }
    print(&rows);
    drop(sides);
    if compare.calls > 0 {
        crate::calls::table([&compare.old, &compare.new].map(PathBuf::as_path), compare.calls)?;
    }
    Ok(())
}

fn one_round(
    sides: &mut [Side; 2],
    step: fn(&mut Side) -> Result<Duration>,
    count: usize,
    first: usize,
    row: &mut Row,
) -> Result<()> {
    let mut times: [Times; 2] = Default::default();
    for turn in 0..count {
        for place in 0..2 {
            let at = (first + turn + place) % 2;
            let time = step(&mut sides[at])?;
            times[at].push(time);
            row.times[at].push(time);
        }
    }
    row.ratios.push(times[1].median() / times[0].median());
    Ok(())
}

fn print(rows: &[Row]) {
    println!("\n### new against old, {} rounds", rows[0].ratios.len());
    println!("| what | old p50 | old p99 | new p50 | new p99 | ratio | 95 % interval | n |");
    println!("|---|---|---|---|---|---|---|---|");
    for row in rows {
        let [old, new] = &row.times;
        let (ratio, low, high) = interval(&row.ratios);
        println!(
            "| {} | {} | {} | {} | {} | {ratio:.3} | {low:.3} to {high:.3} | {} |",
            row.name,
            show(old.median()),
            show(old.at(0.99)),
            show(new.median()),
            show(new.at(0.99)),
            old.count(),
        );
    }
}

/// Student's t at 97.5 % by degrees of freedom, from 1; beyond the table it is close to 1.96.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The geometric mean of ratios, and the ends of its 95 % confidence interval.
fn interval(ratios: &[f64]) -> (f64, f64, f64) {
    let count = ratios.len() as f64;
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let reach = error * T.get(ratios.len().saturating_sub(2)).copied().unwrap_or(1.96);
    (mean.exp(), (mean - reach).exp(), (mean + reach).exp())
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn an_interval_holds_the_mean_and_narrows_with_more_rounds() {
        let (ratio, low, high) = interval(&[0.9, 1.0, 1.1, 1.0]);
        assert!(low < ratio && ratio < high && low < 1.0 && high > 1.0, "{low} {ratio} {high}");
        let many: Vec<f64> = [0.9, 1.0, 1.1, 1.0].repeat(8);
        let (_, closer, below) = interval(&many);
        assert!(low < closer && below < high, "{low} {closer} {below} {high}");
        let (ratio, low, high) = interval(&[1.2; 5]);
        assert!(
            (ratio - 1.2).abs() < 1e-9 && (low - 1.2).abs() < 1e-9 && (high - 1.2).abs() < 1e-9
        );
    }
}
