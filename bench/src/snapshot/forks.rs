//! Many forks at once: their time, memory and disk.

use super::Data;
use super::guest::Guest;
use super::place::Place;
use crate::http::HttpClient;
use crate::memory;
use crate::server::BenchServer;
use anyhow::Result;
use std::time::{Duration, Instant};

/// The number of forks where each copies its files in full.
const FULL_COPIES: usize = 3;
/// Used space of a fork that copies by reference, as a share of its data: at most this.
const SHARED: f64 = 0.1;
/// How long freed memory may take to return.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) fn table(
    wanted: usize,
    place: &Place,
    server: &BenchServer,
    guest: &mut Guest,
    data: &Data,
) -> Result<()> {
    let before = place.used_bytes()?;
    let first = guest.fork(1)?;
    let used = place.used_bytes()?.saturating_sub(before) as f64;
    delete(server, &first)?;
    let shares = used < SHARED * (data.mib << 20) as f64;
    let count = if shares { wanted } else { FULL_COPIES.min(wanted) };
    let memory_before = memory_kib()?;
    let before = place.used_bytes()?;
    let begun = Instant::now();
    let forks = guest.fork(count)?;
    let time = begun.elapsed().as_secs_f64();
    let used = place.used_bytes()?.saturating_sub(before) as f64;
    std::thread::sleep(SETTLE);
    let memory = memory_kib()? - memory_before;
    println!(
        "\n### {count} forks in one call\n| time | a fork | memory of a fork | disk of a fork |"
    );
    println!("|---|---|---|---|");
    let each = count as f64;
    println!(
        "| {time:.2} s | {:.1} ms | {:.0} KiB | {:.2} MiB |",
        time * 1000.0 / each,
        memory / each,
        used / each / f64::from(1 << 20)
    );
    delete(server, &forks)
}

/// Memory of the kernel and of programs, without what is only kept to be faster.
fn memory_kib() -> Result<f64> {
    std::fs::write("/proc/sys/vm/drop_caches", "2")?;
    Ok(memory::parts()?.iter().sum())
}

fn delete(server: &BenchServer, forks: &[String]) -> Result<()> {
    // A long fork outlives an idle connection.
    let mut client = HttpClient::connect(server)?;
    forks.iter().try_for_each(|fork| client.delete(fork))
}
