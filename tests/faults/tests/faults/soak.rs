//! Random kills of every Isolet process under busy sandboxes: no byte of output is lost or
//! duplicated, no acknowledged file is lost, no command runs twice, and nothing is left behind.
//!
//! `make soak` runs this for 20 minutes. `ISOLET_SOAK_S` sets another duration in seconds, and
//! `ISOLET_SOAK_SEED` repeats the random choices of an earlier run, which printed its seed.

mod check;
pub(crate) mod random;
mod stream;
mod tally;
mod victim;
mod work;

use isolet_kit::internet::{Internet, THIRD, zone};
use isolet_kit::net::{self, OTHER, PUBLIC};
use isolet_kit::{LONG, Options, SOON, Server, json, process, veth, wait_until};
use random::Random;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tally::Tally;
use victim::Killer;
use work::Worker;

/// The number of busy sandboxes.
const SANDBOXES: usize = 50;
/// How many of them have egress by address and by name.
const WITH_EGRESS: usize = 10;
/// The default duration in seconds.
const USUAL_S: u64 = 20 * 60;
/// The number of veth pairs that the warm pool holds.
const WARM_VETH_MAX: usize = 6;

/// State that the killer and all workers share.
struct Field {
    http: isolet_kit::Http,
    data: PathBuf,
    /// The kills are over: workers finish and check what they have.
    over: AtomicBool,
    /// A worker has found an error, so the run can stop.
    found: AtomicBool,
    /// Directories of sandboxes whose agents were killed.
    killed: Mutex<BTreeSet<String>>,
}

impl Field {
    fn killed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.killed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    from_env("ISOLET_SOAK_SEED").unwrap_or(clock.as_millis() as u64)
}

/// Promises: F47.
#[test]
#[ignore = "20 minutes: make soak"]
fn soak_random_kills_lose_no_byte_and_no_file_and_run_no_command_twice() {
    let seed = seed();
    let time = Duration::from_secs(from_env("ISOLET_SOAK_S").unwrap_or(USUAL_S));
    println!("ISOLET_SOAK_SEED={seed} ISOLET_SOAK_S={}", time.as_secs());
    let internet = Internet::new(&zone(&[("web.example", PUBLIC)]));
    let mut server = Options::new().config(&internet.config()).start();
    let field = Arc::new(Field {
        http: server.http(),
        data: server.data(),
        over: AtomicBool::new(false),
        found: AtomicBool::new(false),
        killed: Mutex::default(),
    });
    let tally = under_kills(&mut server, &field, seed, time);
    println!("{tally}");
    let everything = tally.streams > 0 && tally.files > 0 && tally.commands > 0;
    assert!(everything && tally.reached > 0, "something was not tried: {tally}");
    let arrived = internet.arrived();
    let closed = arrived.iter().any(|it| it.contains(&OTHER.to_string()));
    assert!(!closed, "a closed destination was reached: {arrived:?}");
    nothing_is_left(server);
}

/// Lets all workers work while processes are killed and finish afterwards; returns their combined
/// tally.
fn under_kills(server: &mut Server, field: &Arc<Field>, seed: u64, time: Duration) -> Tally {
    let start = |number: usize| {
        let field = Arc::clone(field);
        let random = Random::new(seed.wrapping_add(1 + number as u64));
        std::thread::spawn(move || {
            let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut worker = Worker::start(&field, number, number < WITH_EGRESS, random);
                worker.work();
                worker.tally
            }));
            if worked.is_err() {
                field.found.store(true, Ordering::Relaxed);
            }
            worked
        })
    };
    let workers: Vec<_> = (0..SANDBOXES).map(start).collect();
    let mut killer = Killer::new(field, Random::new(seed));
    let end = Instant::now() + time;
    while Instant::now() < end && !field.found.load(Ordering::Relaxed) {
        killer.kill(server);
    }
    field.over.store(true, Ordering::Relaxed);
    let mut sum = Tally::default();
    let mut failed = 0;
    for worker in workers {
        match worker.join().expect("panics are caught") {
            Ok(tally) => sum.add(&tally),
            Err(_) => failed += 1,
        }
    }
    println!("{killer}");
    assert_eq!(failed, 0, "workers found an error; seed {seed}: {sum}");
    sum
}

/// Deletes all sandboxes, ends the server, and looks for leftovers of both.
fn nothing_is_left(server: Server) {
    let http = server.http();
    for id in server.ids(&http) {
        let deleted = http.delete(&format!("/v1/sandboxes/{id}"));
        assert!(matches!(deleted.status, 200 | 204), "{id}: {}", deleted.text());
    }
    server.healthy();
    for name in ["sandboxes", "trash", "credentials"] {
        let entries = std::fs::read_dir(server.data().join(name)).into_iter().flatten().flatten();
        let entries: Vec<_> = entries.map(|entry| entry.path()).collect();
        assert!(entries.is_empty(), "left in {name}: {entries:?}");
    }
    let manager = veth::manager(&server.data());
    let mut seen = (0, 0);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_until("only the warm pool has veth pairs", LONG, || {
            seen = veth::counts(manager);
            (seen.0 <= WARM_VETH_MAX && seen.1 == seen.0).then_some(())
        });
    }));
    assert!(done.is_ok(), "veth interfaces, and addresses in the nftables sets: {seen:?}");
    let proxy = veth::egress_proxy(manager);
    drop(server);
    let gone = |pid: i32| (!process::alive(pid)).then_some(());
    wait_until("the veth manager ends", SOON, || gone(manager));
    wait_until("the egress proxy ends", SOON, || proxy.map_or(Some(()), gone));
    let ours = || net::links("isolet0").is_empty().then_some(());
    wait_until("the uplink of all sandboxes is gone", SOON, ours);
    assert!(!net::run("nft", "list ruleset").contains("isolet"), "an nftables table is left");
}

/// The rules of a sandbox with egress.
fn network() -> isolet_kit::Value {
    json!({"allow": [format!("{THIRD}:8000"), "web.example"]})
}
