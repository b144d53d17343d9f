//! Many faults under 30 busy sandboxes: no acknowledged file is lost, no sandbox runs on two nodes, and
//! what was lost was reported.
//!
//! `make fleet-soak` runs this for about 12 minutes. It continues where an earlier run of the same commit
//! stopped, by the note `target/soak/fleet-CLASS.json`, which also says what has passed so far, with dates.
//! `ISOLET_SOAK_FAULTS` sets the number of faults of this run, `ISOLET_SOAK_SEED` repeats the choices of an
//! earlier one, and `ISOLET_SOAK_CLASS` chooses the class of the sandboxes (`node` or `store`).

mod faults;
mod note;
mod random;
mod recorder;
mod worker;

use crate::NODES;
use faults::inflict;
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{Http, LONG, wait_until};
use note::Note;
use random::Random;
use recorder::Recorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};
use worker::Worker;

/// The number of busy sandboxes.
const SANDBOXES: usize = 30;

/// What all workers share.
struct Field {
    /// A client of each node.
    nodes: Vec<Http>,
    class: String,
    /// The faults are over: workers check what they have.
    over: AtomicBool,
    /// A worker has found an error, so the run can stop.
    found: AtomicBool,
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[ignore = "12 minutes: make fleet-soak"]
fn soak_fleet_faults_lose_nothing_and_run_nothing_twice() {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let seed = from_env("ISOLET_SOAK_SEED").unwrap_or(clock.as_millis() as u64);
    let class = std::env::var("ISOLET_SOAK_CLASS").unwrap_or_else(|_| "node".to_owned());
    let mut note = Note::open(&class);
    let plan = note.missing();
    let count = from_env("ISOLET_SOAK_FAULTS").map_or(plan.len(), |most| most as usize);
    println!(
        "ISOLET_SOAK_SEED={seed} ISOLET_SOAK_CLASS={class}, {} faults are missing",
        plan.len()
    );
    let mut random = Random::new(seed);
    let mut plan = random.shuffled(plan);
    plan.truncate(count);
    if plan.is_empty() {
        return;
    }
    let mut fleet = LocalFleet::with(&FleetOptions {
        has_store: class == "store",
        lease_ttl_s: 5,
        ..FleetOptions::default()
    });
    let recorder = Recorder::start();
    let field = Arc::new(Field {
        nodes: fleet.nodes.iter().map(isolet_fleet_tests::LocalNode::http).collect(),
        class: class.clone(),
        over: AtomicBool::new(false),
        found: AtomicBool::new(false),
    });
    let workers: Vec<_> = (0..SANDBOXES)
        .map(|number| {
            let worker = Worker::create(&field, number, seed);
            let field = Arc::clone(&field);
            std::thread::spawn(move || {
                let worked =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.work()));
                if worked.is_err() {
                    field.found.store(true, Ordering::SeqCst);
                }
                worked
            })
        })
        .collect();
    recorder.wait_for(SANDBOXES);
    for fault in plan {
        let begun = Instant::now();
        inflict(&mut fleet, fault, &mut random);
        recovered(&fleet, &recorder);
        if field.found.load(Ordering::SeqCst) {
            break;
        }
        note.passed(fault, begun.elapsed());
    }
    field.over.store(true, Ordering::SeqCst);
    let mut failed = 0;
    let mut sum = worker::Tally::default();
    for worker in workers {
        match worker.join().expect("panics are caught") {
            Ok(tally) => sum.add(&tally),
            Err(_) => failed += 1,
        }
    }
    println!("{sum}\n{note}");
    assert_eq!(failed, 0, "workers found an error; ISOLET_SOAK_SEED={seed}");
    assert!(sum.written > 0 && sum.checked > 0, "{sum}");
    recorder.check(&class, &fleet);
}

/// Waits until every node answers for every sandbox, and each sandbox is heard again.
fn recovered(fleet: &LocalFleet, recorder: &Recorder) {
    for node in NODES {
        for number in 0..SANDBOXES {
            let sandbox = fleet.node(node).sandbox(&worker::id(number));
            wait_until("every node answers for every sandbox", LONG, || {
                let reply = sandbox.http.try_send("GET", &sandbox.path(""), None).ok()?;
                assert_ne!(reply.status, 404, "{} is lost: {}", sandbox.id, reply.text());
                (reply.status == 200).then_some(())
            });
        }
    }
    recorder.wait_for(SANDBOXES);
}
