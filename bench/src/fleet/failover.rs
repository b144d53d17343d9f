//! What the loss of a machine costs sandboxes of the class `store`: the time until another node answers,
//! and the time of a request that waits for 100 MB of files.

use crate::stats::{Times, rows};
use anyhow::{Context, Result, ensure};
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, Sandbox, json, wait_until};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a machine is lost.
const ROUNDS: usize = 5;
/// Size of the large sandbox's file, in bytes.
const LARGE: u64 = 100_000_000;
/// The lifetime of the nodes' leases, in seconds: the shortest one.
const LEASE_TTL_S: u32 = 5;
/// The pause before a refused request is repeated.
const RETRY: Duration = Duration::from_millis(20);
/// The names of the nodes between which the sandboxes go back and forth.
const NODES: [&str; 2] = ["a", "b"];

pub(crate) fn table(bin: &Path) -> Result<()> {
    let mut fleet = LocalFleet::with(&FleetOptions {
        has_store: true,
        lease_ttl_s: LEASE_TTL_S,
        programs: Some(bin.to_owned()),
        ..FleetOptions::default()
    });
    let large = fleet.create_stored(NODES[0], "large");
    fleet.create_stored(NODES[0], "small");
    let fill = large.exec(&format!("head -c {LARGE} /dev/urandom >/workspace/file"));
    ensure!(fill["exit_code"] == 0, "{fill}");
    let mut answers = Times::default();
    let mut wakes = Times::default();
    for round in 0..ROUNDS {
        let lost = NODES[round % 2];
        let next = NODES[(round + 1) % 2];
        for id in ["large", "small"] {
            push(&fleet.node(lost).sandbox(id))?;
        }
        let [large, small] = ["large", "small"].map(|id| fleet.node(next).sandbox(id));
        let begun = Instant::now();
        fleet.node_mut(lost).server.lose_machine();
        answered(&small);
        answers.push(begun.elapsed());
        let begun = Instant::now();
        answered(&large);
        wakes.push(begun.elapsed());
        ensure!(fleet.owner("large").as_deref() == Some(next), "another node has it");
        fleet.node_mut(lost).server.launch();
        wait_until("the former copies are gone", LONG, || {
            fleet.node(lost).held().is_empty().then_some(())
        });
    }
    rows(
        &format!(
            "### from the loss of a machine to the first answer of another node, lease of {LEASE_TTL_S} s"
        ),
        &[("an empty sandbox", answers.clone())],
    );
    let over = answers.median() / 1e6 - f64::from(LEASE_TTL_S);
    println!("the lifetime of a lease and {over:.1} s");
    rows("### the first command of a sandbox on another node", &[("with 100 MB of files", wakes)]);
    Ok(())
}

/// Takes a snapshot and pushes it.
fn push(sandbox: &Sandbox) -> Result<()> {
    let taken = sandbox.post("/snapshots", &json!({})).expect(201).json();
    let id = taken["id"].as_str().context("an id")?;
    sandbox.http.post(&format!("/v1/snapshots/{id}/push"), &json!({})).expect(200);
    Ok(())
}

/// Runs a command as soon as a node answers.
fn answered(sandbox: &Sandbox) {
    let body = json!({"command": "true"}).to_string();
    let until = Instant::now() + LONG;
    loop {
        let reply = sandbox.http.try_send("POST", &sandbox.path("/exec"), Some(body.as_bytes()));
        if reply.as_ref().is_ok_and(|reply| reply.status == 200) {
            return;
        }
        assert!(Instant::now() < until, "{}: {reply:?}", sandbox.id);
        std::thread::sleep(RETRY);
    }
}
