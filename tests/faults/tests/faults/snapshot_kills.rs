//! SIGKILL of the server or the launcher at every failpoint of snapshots, and at random moments: every
//! listed snapshot is complete, nothing else is left, and the originals are untouched.
//!
//! `make soak` kills 300 times. `ISOLET_SOAK_KILLS` sets another number, and `ISOLET_SOAK_SEED` repeats
//! the random choices of an earlier run, which printed its seed.

mod copied;
mod operations;

use crate::soak::random::Random;
use copied::Copied;
use isolet_kit::{Options, SOON, Server, process, wait_until};
use operations::Operation;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// The failpoints at which the short test kills. Others have tests of their own beside their features.
const OWN: [&str; 5] = ["snapshot.", "restore.", "in_place.", "destroy.", "fork."];
/// Failpoints that no operation of the long test reaches.
const UNREACHED: [&str; 7] =
    ["recover.", "push.", "pull.", "layers.", "fold.", "depart.", "restore_stored."];
/// The default number of kills of the long test.
const KILLS: usize = 300;
/// How long a failpoint holds the server that is killed there, and the one that continues.
const HOLD: &str = "delay(600000)";
const PASS: &str = "delay(700)";

/// The names of all failpoints, from the server's sources: `pass("NAME")`.
fn failpoints() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    search(&crates, &mut found);
    assert!(found.contains("snapshot.copied"), "{found:?}");
    found
}

fn search(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            search(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let names = text.split("pass(").skip(1).filter_map(|rest| {
                rest.trim_start()
                    .strip_prefix('"')?
                    .split_once('"')
                    .map(|(name, _)| name.to_owned())
            });
            found.extend(names.filter(|name| name.contains('.')));
        }
    }
}

/// How often the server's log says that it waits at this point.
fn passes(server: &Server, point: &str) -> usize {
    let log = server.log();
    log.lines().filter(|line| line.contains("failpoint: delayed") && line.contains(point)).count()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Victim {
    Server,
    Launcher,
}

/// Restarts the server with a failpoint, carries out operations until one reaches it, and kills the
/// victim there. Returns whether one did.
fn kill_at(server: &mut Server, point: &str, victim: Victim, copied: &mut Copied) -> bool {
    server.kill();
    let before = passes(server, point);
    let action = if victim == Victim::Server { HOLD } else { PASS };
    server.launch_with("ISOLET_FAILPOINTS", &format!("{point}={action}"));
    server.wait_until_ready();
    let over = AtomicBool::new(false);
    let reached = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            for operation in Operation::ALL {
                if !over.load(Ordering::Relaxed) {
                    copied.carry_out(operation);
                }
            }
        });
        let mut reached = false;
        while !work.is_finished() && !over.load(Ordering::Relaxed) {
            if passes(server, point) > before {
                reached = true;
                over.store(true, Ordering::Relaxed);
                match victim {
                    Victim::Server => process::kill(server.pid()),
                    Victim::Launcher => process::kill(server.launcher()),
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        work.join().expect("the operations end");
        // The operations may have ended before this thread looked again.
        reached || passes(server, point) > before
    });
    server.kill();
    server.launch();
    reached
}

/// Promises: SN3.
#[test]
fn long_a_kill_at_any_failpoint_leaves_complete_snapshots_and_nothing_else() {
    let mut server = Server::start();
    let mut copied = Copied::new(&server);
    // A subvolume is copied as a whole, in one pass.
    let is_btrfs = server.http().get("/health").json()["storage"] == "btrfs";
    let own = |name: &String| {
        OWN.iter().any(|prefix| name.starts_with(prefix)) && !(is_btrfs && name == "snapshot.live")
    };
    let mut unreached = Vec::new();
    for (number, point) in failpoints().into_iter().filter(own).enumerate() {
        // The launcher creates sandboxes, and has no part in most steps.
        let all = [Victim::Server, Victim::Launcher];
        let victims =
            if point.starts_with("restore.") || number % 4 == 0 { &all[..] } else { &all[..1] };
        for victim in victims {
            eprintln!("{point}: {victim:?}");
            if !kill_at(&mut server, &point, *victim, &mut copied) {
                unreached.push(point.clone());
            }
            copied.check(&server, 1);
        }
    }
    assert!(unreached.is_empty(), "no operation reaches {unreached:?}: add one to Operation");
    copied.check(&server, usize::MAX);
    copied.end(&server);
    server.healthy();
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Kills a victim after a random time of random operations of both sandboxes.
fn kill_sometime(server: &mut Server, random: &mut Random, copied: &mut Copied) -> Victim {
    let victim = if random.below(4) == 0 { Victim::Launcher } else { Victim::Server };
    let mut apart = copied.apart();
    let seeds: Vec<u64> = apart.iter().map(|_| random.next()).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (own, seed) in apart.iter_mut().zip(seeds) {
            let over = &over;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !over.load(Ordering::Relaxed) {
                    let all = Operation::ALL;
                    own.carry_out(all[random.below(all.len())]);
                }
            });
        }
        random.rest(10, 2500);
        match victim {
            Victim::Server => process::kill(server.pid()),
            Victim::Launcher => process::kill(server.launcher()),
        }
        random.rest(1, 200);
        over.store(true, Ordering::Relaxed);
        if victim == Victim::Server {
            server.kill();
        }
    });
    copied.join(apart);
    if victim == Victim::Server {
        server.launch();
    }
    victim
}

/// Kills at random failpoints and at random times, during random operations.
fn kills(options: Options, kills: usize) {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let seed = from_env("ISOLET_SOAK_SEED").unwrap_or(clock.as_millis() as u64);
    println!("ISOLET_SOAK_SEED={seed} ISOLET_SOAK_KILLS={kills}");
    let mut random = Random::new(seed);
    let mut server = options.start();
    let mut copied = Copied::new(&server);
    let reached = |name: &String| !UNREACHED.iter().any(|prefix| name.starts_with(prefix));
    let points: Vec<String> = failpoints().into_iter().filter(reached).collect();
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    let mut number = 0;
    while number < kills {
        let what = if random.below(2) == 0 {
            let point = &points[random.below(points.len())];
            let victim = if random.below(4) == 0 { Victim::Launcher } else { Victim::Server };
            let reached = kill_at(&mut server, point, victim, &mut copied);
            number += usize::from(reached);
            if reached { format!("{victim:?} at {point}") } else { format!("not reached: {point}") }
        } else {
            let victim = kill_sometime(&mut server, &mut random, &mut copied);
            number += 1;
            format!("{victim:?} at a random time")
        };
        *tally.entry(what).or_default() += 1;
        let often = number.is_multiple_of(10);
        copied.check(&server, if often { usize::MAX } else { 1 });
        if often {
            println!("{number} kills: {copied}");
        }
    }
    println!("{tally:#?}\n{copied}");
    copied.end(&server);
    server.healthy();
    wait_until("no file is left", SOON, || server.snapshot_files().is_empty().then_some(()));
}

fn wanted() -> usize {
    from_env("ISOLET_SOAK_KILLS").map_or(KILLS, |kills| kills as usize)
}

/// Promises: SN3.
#[test]
#[ignore = "20 minutes: make soak"]
fn soak_kills_during_snapshots_leave_complete_ones_and_nothing_else() {
    kills(Options::new(), wanted());
}

/// Promises: SN3.
#[test]
#[ignore = "needs btrfs-progs: make soak"]
fn soak_kills_during_snapshots_on_btrfs() {
    kills(Options::new().loop_disk("btrfs", 8000, &[]), wanted() / 6);
}

/// Promises: SN3.
#[test]
#[ignore = "needs xfsprogs: make soak"]
fn soak_kills_during_snapshots_on_xfs() {
    kills(Options::new().loop_disk("xfs", 8000, &[]), wanted() / 6);
}
