//! Table (b): from a create to the first byte of output, and to the end of the delete.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::{Context, Result, ensure};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Creates of one variant in a row before the next variant follows.
const BURST: usize = 6;
/// The rest before each create of every variant, so that the server has finished the last one.
/// The parallel part below has no rest.
const REST: Duration = Duration::from_millis(20);
/// Duration of the parallel part.
const PARALLEL: Duration = Duration::from_secs(4);

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    let diskless = BenchServer::start_with(bin, &[("ISOLET_DEFAULT_DISK_MIB", "0")])?;
    let mut diskless_client = HttpClient::connect(&diskless)?;
    let names = [
        "bash, fork and exec",
        "bubblewrap",
        "isolet, shell",
        "isolet, exec",
        "isolet, exec, disk_mib 0",
    ];
    let mut first: Vec<_> = names.iter().map(|name| (*name, Times::default())).collect();
    let names = ["bubblewrap", "isolet", "isolet, disk_mib 0"];
    let mut ended: Vec<_> = names.iter().map(|name| (*name, Times::default())).collect();
    for round in 0..rounds {
        for turn in 0..BURST {
            let id = format!("c{round}-{turn}");
            std::thread::sleep(REST);
            first[0].1.push(program(&mut bash())?.0);
            std::thread::sleep(REST);
            let (begun, gone) = program(&mut bubblewrap())?;
            first[1].1.push(begun);
            ended[0].1.push(gone);
            std::thread::sleep(REST);
            first[2].1.push(create(&mut client, &id, HttpClient::session)?);
            ended[1].1.push(destroy(&mut client, &id)?);
            std::thread::sleep(REST);
            first[3].1.push(create(&mut client, &id, HttpClient::exec)?);
            ended[1].1.push(destroy(&mut client, &id)?);
            std::thread::sleep(REST);
            first[4].1.push(create(&mut diskless_client, &id, HttpClient::exec)?);
            ended[2].1.push(destroy(&mut diskless_client, &id)?);
        }
    }
    rows("### create to first byte of output, 20 ms of rest before each", &first);
    rows("### from the end of its use to nothing left", &ended);
    println!(
        "\n### creates and deletes a second\n| clients | per second | p50 | p99 |\n|---|---|---|---|"
    );
    for clients in [1, 4, 8] {
        parallel(&server, clients)?;
    }
    Ok(())
}

pub(crate) fn bash() -> Command {
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile"]);
    command
}

/// Bubblewrap with the namespaces that its flags offer, on the host's root.
fn bubblewrap() -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]);
    command.args(["bash", "--norc", "--noprofile"]);
    command
}

/// Starts a program that prints, and ends it. Returns the time to the first byte and to the end.
pub(crate) fn program(command: &mut Command) -> Result<(Duration, Duration)> {
    let begun = Instant::now();
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("spawn")?;
    let mut stdin = child.stdin.take().context("piped")?;
    std::io::Write::write_all(&mut stdin, b"echo ready\n")?;
    let mut byte = [0];
    child.stdout.take().context("piped")?.read_exact(&mut byte)?;
    let first = begun.elapsed();
    let begun = Instant::now();
    drop(stdin);
    child.wait()?;
    Ok((first, begun.elapsed()))
}

/// One request that creates the sandbox and runs a command in it.
fn create(
    client: &mut HttpClient,
    id: &str,
    run: fn(&mut HttpClient, &str, &str) -> Result<usize>,
) -> Result<Duration> {
    let begun = Instant::now();
    let count = run(client, id, "echo ready")?;
    let time = begun.elapsed();
    ensure!(count == 6, "{count} bytes of output");
    Ok(time)
}

fn destroy(client: &mut HttpClient, id: &str) -> Result<Duration> {
    let begun = Instant::now();
    client.delete(id)?;
    Ok(begun.elapsed())
}

fn parallel(server: &BenchServer, clients: usize) -> Result<()> {
    let until = Instant::now() + PARALLEL;
    let results: Vec<Result<Vec<Duration>>> = std::thread::scope(|scope| {
        let work = |at: usize| {
            move || {
                let mut client = HttpClient::connect(server)?;
                let mut times = Vec::new();
                while Instant::now() < until {
                    let id = format!("p{clients}-{at}-{}", times.len());
                    times.push(create(&mut client, &id, HttpClient::exec)?);
                    client.delete(&id)?;
                }
                Ok(times)
            }
        };
        let threads: Vec<_> = (0..clients).map(|at| scope.spawn(work(at))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut times = Times::default();
    for result in results {
        result?.into_iter().for_each(|time| times.push(time));
    }
    let rate = times.count() as f64 / PARALLEL.as_secs_f64();
    let median = crate::stats::show(times.median());
    let tail = crate::stats::show(times.at(0.99));
    println!("| {clients} | {rate:.0} | {median} | {tail} |");
    Ok(())
}
