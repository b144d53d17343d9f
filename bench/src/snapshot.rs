//! Snapshots, creations from them and forks, beside the host's ways to copy the same files on the same
//! file system: each is a new ext4, xfs or btrfs on a loop device.

mod forks;
mod guest;
mod host_copies;
mod neighbour;
mod place;

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, show};
use anyhow::{Context, Result, ensure};
use guest::{Guest, id_of};
use host_copies::HostCopies;
use hyper::Method;
use place::{Kind, Place};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The most rounds of each table, because some copy a gigabyte several times.
const ROUNDS_MAX: usize = 5;
/// Disk of the sandboxes that have one, in MiB.
const DISK_MIB: u64 = 4096;
/// Resumes of each file system.
const RESUMES: usize = 60;
/// The rest before each measurement.
const REST: Duration = Duration::from_millis(20);

/// What the table `snapshot` measures. It takes about 15 minutes with these defaults.
#[derive(clap::Args)]
pub(crate) struct Sizes {
    /// `snapshot`: size of the one large file, in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    file_mib: u64,
    /// `snapshot`: number of small files, 10 KB each.
    #[arg(long, default_value_t = 20_000, value_name = "COUNT")]
    files: usize,
    /// `snapshot`: number of forks where they share blocks with the original.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    forks: usize,
    /// `snapshot`: measure only on these file systems, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["ext4", "xfs", "btrfs"])]
    on: Vec<Kind>,
}

/// What is copied.
#[derive(Clone, Copy)]
struct Data {
    name: &'static str,
    /// Where it is in the sandbox.
    folder: &'static str,
    mib: u64,
    files: usize,
}

impl Data {
    /// A shell script that writes the data into `folder`.
    fn script(&self, folder: &str) -> String {
        if self.files == 1 {
            return format!(
                "mkdir -p {folder} && head -c {}M /dev/urandom >{folder}/file",
                self.mib
            );
        }
        format!(
            "python3 -c \"import os\nfor n in range({}):\n  at = '{folder}/%d' % (n // 100)\n  \
             n % 100 or os.makedirs(at)\n  open(at + '/%d' % n, 'wb').write(os.urandom(10240))\"",
            self.files
        )
    }

    fn title(&self) -> String {
        format!("{} in {}", self.name, self.folder)
    }
}

pub(crate) fn table(bin: &Path, rounds: usize, sizes: &Sizes) -> Result<()> {
    let rounds = rounds.min(ROUNDS_MAX);
    for kind in &sizes.on {
        let place = match Place::mount(*kind) {
            Ok(place) => place,
            Err(error) => {
                println!("\n{kind}: not measured: {error:#}");
                continue;
            }
        };
        on(bin, rounds, sizes, &place)?;
    }
    Ok(())
}

fn on(bin: &Path, rounds: usize, sizes: &Sizes, place: &Place) -> Result<()> {
    let large =
        Data { name: "one large file", folder: "/workspace/data", mib: sizes.file_mib, files: 1 };
    let mib = (sizes.files as u64 * 10).div_ceil(1024);
    let small =
        Data { name: "many small files", folder: "/workspace/data", mib, files: sizes.files };
    let in_root = |data: Data| Data { folder: "/opt/data", ..data };
    for (disk_mib, all) in
        [(0, vec![large, in_root(large), small, in_root(small)]), (DISK_MIB, vec![large, small])]
    {
        let disk = disk_mib.to_string();
        let env = [("ISOLET_WARM_POOL_SIZE", "0"), ("ISOLET_DEFAULT_DISK_MIB", disk.as_str())];
        let server = BenchServer::start_in(bin, place.path(), &env)?;
        let health = HttpClient::connect(&server)?.call(Method::GET, "/health", None)?;
        println!("\n## {}, disk_mib {disk_mib}, backend {}", place.kind, health["storage"]);
        for data in all {
            // On file systems that copy all directories by reference, the directory makes no difference.
            if data.folder == "/workspace/data" || place.kind == Kind::Ext4 {
                one(bin, rounds, sizes, place, &server, &data)?;
            }
        }
        resumes(&server)?;
    }
    Ok(())
}

/// All tables of one sandbox with data.
fn one(
    bin: &Path,
    rounds: usize,
    sizes: &Sizes,
    place: &Place,
    server: &BenchServer,
    data: &Data,
) -> Result<()> {
    let host = HostCopies::prepare(place, data)?;
    let mut guest = Guest::create(server, data)?;
    copies(rounds, &mut guest, &host, data)?;
    first_outputs(rounds, &mut guest)?;
    neighbour::table(bin, server, &mut guest)?;
    forks::table(sizes.forks, place, server, &mut guest, data)?;
    guest.delete()?;
    drop(host);
    place.trim()
}

/// The times of one way to copy.
#[derive(Default)]
struct Row {
    name: String,
    times: Times,
    frozen: Times,
}

impl Row {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Takes a snapshot, and deletes it.
    fn snapshot(&mut self, guest: &mut Guest) -> Result<()> {
        let begun = Instant::now();
        let taken = guest.snapshot()?;
        self.times.push(begun.elapsed());
        let frozen = taken["frozen_ms"].as_f64().context("frozen_ms")?;
        self.frozen.push(Duration::from_secs_f64(frozen / 1000.0));
        guest.remove_snapshot(&taken)
    }
}

fn copies(rounds: usize, guest: &mut Guest, host: &HostCopies, data: &Data) -> Result<()> {
    let mut own = ["idle", "under writes", "asleep"]
        .map(|name| Row::new(&format!("isolet snapshot, {name}")));
    let mut others: Vec<Row> = host.ways().iter().map(|way| Row::new(way)).collect();
    // What was written for the preparation reaches the disk now.
    guest.sync()?;
    Row::new("").snapshot(guest)?;
    for _ in 0..rounds {
        std::thread::sleep(REST);
        own[0].snapshot(guest)?;
        guest.write(true)?;
        std::thread::sleep(REST);
        own[1].snapshot(guest)?;
        guest.write(false)?;
        guest.sleep()?;
        own[2].snapshot(guest)?;
        guest.wake()?;
        for (at, other) in others.iter_mut().enumerate() {
            std::thread::sleep(REST);
            other.times.push(host.copy(at)?);
        }
    }
    println!("\n### copies: {}, {} files, {} MiB", data.title(), data.files, data.mib);
    println!(
        "| copy | p50 | max | ratio to {} | frozen p50 | n |\n|---|---|---|---|---|---|",
        others[0].name
    );
    let base = others[0].times.median();
    for row in own.iter().chain(&others) {
        let median = row.times.median();
        println!(
            "| {} | {} | {} | {:.3} | {} | {} |",
            row.name,
            show(median),
            show(row.times.at(1.0)),
            median / base,
            show(row.frozen.median()),
            row.times.count()
        );
    }
    Ok(())
}

fn first_outputs(rounds: usize, guest: &mut Guest) -> Result<()> {
    let names = ["create", "create from a snapshot", "fork"];
    let mut rows: Vec<_> = names.iter().map(|name| (*name, Times::default())).collect();
    let taken = guest.snapshot()?;
    let snapshot = id_of(&taken)?;
    for _ in 0..rounds * 2 {
        for (at, row) in rows.iter_mut().enumerate() {
            std::thread::sleep(REST);
            let begun = Instant::now();
            let id = match at {
                0 => guest.create_other(&json!({}))?,
                1 => guest.create_other(&json!({"snapshot": snapshot}))?,
                _ => guest.fork(1)?.pop().context("a fork")?,
            };
            let count = guest.client.exec(&id, "echo ready")?;
            row.1.push(begun.elapsed());
            ensure!(count == 6, "{count} bytes of output");
            guest.client.delete(&id)?;
        }
    }
    guest.remove_snapshot(&taken)?;
    crate::stats::rows("### to the first output (aim by reference: 1.3)", &rows);
    Ok(())
}

/// From a resume to the first output of a command.
fn resumes(server: &BenchServer) -> Result<()> {
    let mut client = HttpClient::connect(server)?;
    client.session("paused", ":")?;
    let mut rows = [("a command", Times::default()), ("resume, and a command", Times::default())];
    for _ in 0..RESUMES {
        let begun = Instant::now();
        client.session("paused", "echo ready")?;
        rows[0].1.push(begun.elapsed());
        let empty: Value = json!({});
        client.call(Method::POST, "/v1/sandboxes/paused/pause", Some(&empty))?;
        std::thread::sleep(REST / 4);
        let begun = Instant::now();
        client.call(Method::POST, "/v1/sandboxes/paused/resume", Some(&empty))?;
        client.session("paused", "echo ready")?;
        rows[1].1.push(begun.elapsed());
    }
    client.delete("paused")?;
    crate::stats::rows("### a paused sandbox to its first output (aim: 3 ms)", &rows);
    Ok(())
}
