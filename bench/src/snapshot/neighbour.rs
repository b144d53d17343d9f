//! How long snapshots of one tenant delay the commands of another.

use super::guest::Guest;
use crate::http::HttpClient;
use crate::secret::other_key;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::Result;
use hyper::Method;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long commands run alone, and during snapshots.
const TIME: Duration = Duration::from_secs(3);
/// The most snapshots during that time.
const SNAPSHOTS_MAX: usize = 20;

pub(crate) fn table(bin: &Path, server: &BenchServer, guest: &mut Guest) -> Result<()> {
    let key = other_key(bin, server)?;
    let mut other = HttpClient::connect_with(server, &key)?;
    other.session("neighbour", ":")?;
    guest.write(true)?;
    let alone = commands(&mut other, || false)?;
    let over = AtomicBool::new(false);
    let (during, taken) = std::thread::scope(|scope| {
        let snapshots = scope.spawn(|| {
            let taken = snapshots(guest);
            over.store(true, Ordering::Relaxed);
            taken
        });
        let during = commands(&mut other, || over.load(Ordering::Relaxed));
        (during, snapshots.join())
    });
    let taken = taken.map_err(|_| anyhow::anyhow!("the snapshots panicked"))??;
    guest.write(false)?;
    other.call(Method::DELETE, "/v1/sandboxes/neighbour", None)?;
    let title = format!("### `:` of another tenant, while a sandbox writes; {taken} snapshots");
    rows(&title, &[("no snapshots", alone), ("during snapshots", during?)]);
    Ok(())
}

/// Runs commands for a while, and until `over`.
fn commands(client: &mut HttpClient, over: impl Fn() -> bool) -> Result<Times> {
    let mut times = Times::default();
    let until = Instant::now() + TIME;
    while Instant::now() < until && !over() {
        let begun = Instant::now();
        client.session("neighbour", ":")?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// Takes and deletes snapshots for a while. Returns how many.
fn snapshots(guest: &mut Guest) -> Result<usize> {
    let until = Instant::now() + TIME;
    let mut taken = 0;
    while Instant::now() < until && taken < SNAPSHOTS_MAX {
        let snapshot = guest.snapshot()?;
        guest.remove_snapshot(&snapshot)?;
        taken += 1;
    }
    Ok(taken)
}
