//! Attacks on the memory and the processor time of a server with 512 MiB, each beside an honest
//! request of its size, and the commands of a neighbour while it runs.
//!
//! The costs are the peak of the server's memory above its level before, and the processor time of the
//! server without what the neighbour's commands cost.

mod cgroup;
mod requests;

use crate::http::HttpClient;
use crate::secret::tenant_key;
use crate::server::BenchServer;
use crate::stats::{Times, show};
use anyhow::{Context, Result, bail};
use cgroup::MemoryGroup;
use isolet_kit::attacks::MemoryPeak;
use requests::Attacker;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The server's memory, and what it derives from it at its start.
const SERVER_MIB: u64 = 512;
const CONFIG: &str = "[limits]\nmemory_mib = 512\n[connections]\nmax = 512\nanswers_mib = 21\n";
/// The neighbour's commands without an attack.
const ALONE: usize = 400;
/// How long each attack is watched at least, so that the neighbour's p99 has enough commands.
const WATCHED: Duration = Duration::from_secs(4);
const NEIGHBOUR: &str = "neighbour";

/// One kind of attack: its honest counterpart, and itself.
struct Case {
    name: &'static str,
    run: fn(&Attacker, honest: bool) -> Result<()>,
}

const CASES: [Case; 9] = [
    Case { name: "2: message of 15 MiB to /mcp", run: Attacker::message },
    Case { name: "2: displayed value of 31 MiB", run: Attacker::display },
    Case { name: "2: 8 bodies of 2 MiB", run: Attacker::bodies },
    Case { name: "3: 16 stalled ListDir", run: Attacker::directories },
    Case { name: "3: 96 stalled lists of snapshots", run: Attacker::snapshot_lists },
    Case { name: "6: form without end (192 MiB)", run: Attacker::form },
    Case { name: "8: 16 recursive lists, abandoned", run: Attacker::recursive_lists },
    Case { name: "8: 16 comparisons", run: Attacker::comparisons },
    Case { name: "8: 2000 wrong signed URLs", run: Attacker::signed_urls },
];

/// What a run cost.
struct Cost {
    peak_mib: u64,
    cpu_s: f64,
    neighbour: Times,
}

pub(crate) fn table(bin: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("isolet.toml");
    fs::write(&config, CONFIG)?;
    let config = config.to_str().context("a path in UTF-8")?;
    let server = BenchServer::start_with(bin, &[("ISOLET_CONFIG", config)])?;
    let group = MemoryGroup::new(SERVER_MIB)?;
    group.take(server.pid())?;
    let key = tenant_key(bin, &server, NEIGHBOUR)?;
    let mut neighbour = HttpClient::connect_with(&server, &key)?;
    neighbour.create(NEIGHBOUR)?;
    let attacker = Attacker::prepare(&server, tenant_key(bin, &server, "attacker")?)?;
    let alone = commands(&mut neighbour, &AtomicBool::new(false), Some(ALONE))?;
    let before = cpu_s(server.pid())?;
    commands(&mut neighbour, &AtomicBool::new(false), Some(ALONE))?;
    let each_s = (cpu_s(server.pid())? - before) / ALONE as f64;
    println!("\n### attacks on a server with {SERVER_MIB} MiB");
    println!(
        "neighbour's exec alone: p50 {}, p99 {}\n",
        show(alone.median()),
        show(alone.at(0.99))
    );
    println!(
        "| attack | peak MiB, honest | attack | processor s, honest | attack | p99 of exec, honest | attack |"
    );
    println!("|---|---|---|---|---|---|---|");
    for case in &CASES {
        let mut measure = |honest| {
            let run = || (case.run)(&attacker, honest);
            watched(&server, &mut neighbour, each_s, run).with_context(|| case.name)
        };
        row(case.name, &measure(true)?, &measure(false)?);
    }
    let all = |honest| {
        std::thread::scope(|scope| {
            let attacker = &attacker;
            let running: Vec<_> = CASES
                .iter()
                .map(|case| scope.spawn(move || (case.run)(attacker, honest)))
                .collect();
            running.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| bail!("panicked")))
        })
    };
    let honest = watched(&server, &mut neighbour, each_s, || all(true))?;
    let attack = watched(&server, &mut neighbour, each_s, || all(false))?;
    row("all at once", &honest, &attack);
    println!("\nprocesses that the kernel killed for lack of memory: {}", group.killed()?);
    Ok(())
}

fn row(name: &str, honest: &Cost, attack: &Cost) {
    println!(
        "| {name} | {} | {} | {:.2} | {:.2} | {} | {} |",
        honest.peak_mib,
        attack.peak_mib,
        honest.cpu_s,
        attack.cpu_s,
        show(honest.neighbour.at(0.99)),
        show(attack.neighbour.at(0.99))
    );
}

/// Runs something while the neighbour runs commands.
fn watched(
    server: &BenchServer,
    neighbour: &mut HttpClient,
    each_s: f64,
    run: impl FnOnce() -> Result<()> + Send,
) -> Result<Cost> {
    let pid = server.pid();
    // What the run before has left is freed first.
    std::thread::sleep(Duration::from_secs(1));
    let peak = MemoryPeak::from_now(pid)?;
    let before = cpu_s(pid)?;
    let ended = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let begun = Instant::now();
            let result = run();
            std::thread::sleep(WATCHED.saturating_sub(begun.elapsed()));
            ended.store(true, Ordering::Relaxed);
            result
        });
        let times = commands(neighbour, &ended, None);
        running.join().unwrap_or_else(|_| bail!("panicked"))?;
        times
    })?;
    let cpu_s = cpu_s(pid)? - before - each_s * times.count() as f64;
    Ok(Cost { peak_mib: peak.grown_mib()?, cpu_s: cpu_s.max(0.0), neighbour: times })
}

/// The neighbour's commands, until `ended` or up to a number of them.
fn commands(client: &mut HttpClient, ended: &AtomicBool, max: Option<usize>) -> Result<Times> {
    let mut times = Times::default();
    while !ended.load(Ordering::Relaxed) && max.is_none_or(|max| times.count() < max) {
        let begun = Instant::now();
        client.exec(NEIGHBOUR, ":")?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// The processor time of a process, in seconds.
fn cpu_s(pid: u32) -> Result<f64> {
    /// The kernel counts in steps of this length.
    const TICKS_PER_S: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("a name")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    let [user, system] = [ticks(11).context("utime")?, ticks(12).context("stime")?];
    Ok((user + system) / TICKS_PER_S)
}
