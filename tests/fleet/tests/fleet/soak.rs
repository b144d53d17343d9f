//! Many faults under 30 busy sandboxes, every second one of the class `store`: no sandbox runs on two
//! nodes, no acknowledged file is lost that a pushed snapshot has, and every loss is reported.
//!
//! `make fleet-soak` inflicts 170 faults in about half an hour. It continues where an earlier run of the same
//! commit stopped, by the note `target/soak/fleet-CLASS.json`, which says what has passed so far, with
//! dates. `ISOLET_SOAK_FAULTS` sets the number of faults of this run, `ISOLET_SOAK_SEED` repeats the
//! choices of an earlier one, `ISOLET_SOAK_CLASS` gives all sandboxes one class (`node` or `store`), and
//! `ISOLET_SOAK_KIND` chooses the kinds of faults whose names contain it.
//!
//! `recorder` says what an overlap is, `files` which files must be there, and `worker` which losses must
//! be reported, and how.

mod faults;
mod files;
mod note;
mod owners;
mod random;
mod recorder;
mod tally;
mod worker;

use crate::NODES;
use faults::inflict;
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{Http, LONG, wait_until};
use note::Note;
use random::Random;
use recorder::Recorder;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tally::Tally;
use worker::Worker;

/// The number of busy sandboxes.
const SANDBOXES: usize = 30;

/// What all workers share.
struct Field {
    /// A client of each node.
    nodes: Vec<Http>,
    recorder: Recorder,
    /// How often each node's machine was lost, with all processes.
    deaths: [AtomicUsize; 3],
    /// The faults are over: workers check what they have.
    over: AtomicBool,
    /// A worker has found an error, so the run can stop.
    found: AtomicBool,
}

impl Field {
    fn deaths(&self) -> [usize; 3] {
        [0, 1, 2].map(|node| self.deaths[node].load(Ordering::SeqCst))
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Promises: FL2, FL11, FL34.
#[test]
#[ignore = "half an hour: make fleet-soak"]
fn soak_fleet_faults_lose_nothing_and_run_nothing_twice() {
    let seed = from_env("ISOLET_SOAK_SEED").unwrap_or(worker::now_ms().unsigned_abs());
    let class = std::env::var("ISOLET_SOAK_CLASS").unwrap_or_else(|_| "both".to_owned());
    let kind = std::env::var("ISOLET_SOAK_KIND").unwrap_or_default();
    let mut note = Note::open(&class);
    let mut plan = note.missing();
    println!("ISOLET_SOAK_SEED={seed}, {} faults are missing", plan.len());
    plan.retain(|fault| fault.name().contains(&kind));
    let count = from_env("ISOLET_SOAK_FAULTS").map_or(plan.len(), |most| most as usize);
    let mut random = Random::new(seed);
    let mut plan = random.shuffled(plan);
    plan.truncate(count);
    if plan.is_empty() {
        return;
    }
    let mut fleet = LocalFleet::with(&FleetOptions {
        has_store: true,
        lease_ttl_s: 5,
        ..FleetOptions::default()
    });
    let field = Arc::new(Field {
        nodes: fleet.nodes.iter().map(isolet_fleet_tests::LocalNode::http).collect(),
        recorder: Recorder::start(&fleet),
        deaths: Default::default(),
        over: AtomicBool::new(false),
        found: AtomicBool::new(false),
    });
    let mut workers: Vec<Worker> =
        (0..SANDBOXES).map(|number| Worker::create(&field, number, seed)).collect();
    workers.iter_mut().for_each(Worker::wait_until_pushed);
    let workers: Vec<_> = workers
        .into_iter()
        .map(|worker| {
            let field = Arc::clone(&field);
            std::thread::spawn(move || {
                let worked = catch_unwind(AssertUnwindSafe(|| worker.work()));
                if worked.is_err() {
                    field.found.store(true, Ordering::SeqCst);
                }
                worked
            })
        })
        .collect();
    field.recorder.wait_for(SANDBOXES);
    let begun = Instant::now();
    let planned = plan.len();
    for (done, fault) in plan.into_iter().enumerate() {
        let started = Instant::now();
        inflict(&mut fleet, &field, fault, &mut random);
        let is_well = catch_unwind(AssertUnwindSafe(|| recovered(&fleet, &field)));
        let violations = field.recorder.violations();
        if field.found.load(Ordering::SeqCst) || is_well.is_err() || !violations.is_empty() {
            println!("{} failed: {violations:?}", fault.name());
            logs(&fleet);
            field.found.store(true, Ordering::SeqCst);
            break;
        }
        note.passed(fault, started.elapsed());
        println!("{} of {planned} in {:.0} s", done + 1, begun.elapsed().as_secs_f64());
    }
    field.over.store(true, Ordering::SeqCst);
    let mut failed = usize::from(field.found.load(Ordering::SeqCst));
    let mut sum = Tally::default();
    for worker in workers {
        match worker.join().expect("panics are caught") {
            Ok(tally) => sum.add(&tally),
            Err(_) => failed += 1,
        }
    }
    println!("{sum}\n{note}");
    assert_eq!(failed, 0, "something was found; ISOLET_SOAK_SEED={seed}");
    assert!(sum.written > 0 && sum.checked > 0, "{sum}");
    field.recorder.check(&fleet, field.deaths());
}

/// Copies the logs of the nodes to a directory that stays.
fn logs(fleet: &LocalFleet) {
    for node in &fleet.nodes {
        let path = note::folder().join(format!("fleet-{}.log", node.name));
        let _ = std::fs::write(&path, node.server.log());
        println!("log of node {}: {}", node.name, path.display());
    }
}

/// Waits until every node answers for every sandbox, and each sandbox is heard again.
fn recovered(fleet: &LocalFleet, field: &Field) {
    for node in NODES {
        for number in 0..SANDBOXES {
            let sandbox = fleet.node(node).sandbox(&worker::id(number));
            let mut last = String::new();
            let answered = catch_unwind(AssertUnwindSafe(|| {
                wait_until("every node answers for every sandbox", LONG, || {
                    if field.found.load(Ordering::SeqCst) {
                        return Some(());
                    }
                    let reply = sandbox.http.try_send("GET", &sandbox.path(""), None).ok()?;
                    assert_ne!(reply.status, 404, "{} is lost: {}", sandbox.id, reply.text());
                    last = reply.text();
                    (reply.status == 200).then_some(())
                });
            }));
            assert!(answered.is_ok(), "{} through {node}: {last}", sandbox.id);
        }
    }
    field.recorder.wait_for(SANDBOXES);
}
