//! How long snapshots and `sync` of one tenant delay the commands of another.

use super::guest::Guest;
use crate::http::HttpClient;
use crate::secret::tenant_key;
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
    let key = tenant_key(bin, server, "other")?;
    let mut other = HttpClient::connect_with(server, &key)?;
    other.session("neighbour", ":")?;
    guest.write(true)?;
    let alone = commands(&mut other, || false)?;
    let (snapshots, taken) = during(&mut other, guest, snapshots)?;
    let (syncs, synced) = during(&mut other, guest, syncs)?;
    guest.write(false)?;
    other.call(Method::DELETE, "/v1/sandboxes/neighbour", None)?;
    let names = [
        "beside writes only".to_owned(),
        format!("beside {taken} snapshots"),
        format!("beside {synced} runs of `sync`"),
    ];
    let [first, second, third] = &names;
    let variants = [(first.as_str(), alone), (second, snapshots), (third, syncs)];
    rows("### `:` of another tenant, beside a sandbox that writes", &variants);
    Ok(())
}

/// Runs commands while another thread disturbs them.
fn during(
    other: &mut HttpClient,
    guest: &mut Guest,
    disturb: fn(&mut Guest) -> Result<usize>,
) -> Result<(Times, usize)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let disturbing = scope.spawn(|| {
            let count = disturb(guest);
            over.store(true, Ordering::Relaxed);
            count
        });
        let times = commands(other, || over.load(Ordering::Relaxed))?;
        let count = disturbing.join().map_err(|_| anyhow::anyhow!("the thread panicked"))??;
        Ok((times, count))
    })
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

/// Writes the files of the sandbox to the disk for a while. Returns how often.
fn syncs(guest: &mut Guest) -> Result<usize> {
    let until = Instant::now() + TIME;
    let mut count = 0;
    while Instant::now() < until {
        guest.sync()?;
        count += 1;
    }
    Ok(count)
}
