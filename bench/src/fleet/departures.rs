//! What it costs that sandboxes leave their node: the move of one, and the drain of a node with many.

use crate::stats::{Times, rows};
use anyhow::{Context, Result, ensure};
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, Value, json, wait_until};
use std::path::Path;
use std::time::{Duration, Instant};

/// Sandboxes on the node that is drained.
const SANDBOXES: usize = 200;
/// Memory of each, in MiB: little, so that two nodes have room for all of them.
const MEMORY_MIB: u64 = 64;
/// How often one sandbox is moved.
const MOVES: usize = 20;
/// The time after which a drain begins no further move, in seconds.
const DRAIN_TIMEOUT_S: u64 = 1800;
/// The time in which a drain ends. Its last moves may begin right before the timeout.
const DRAIN_MAX: Duration = Duration::from_secs(DRAIN_TIMEOUT_S + 120);
/// The pause between two requests for the same answer, so that asking costs the nodes little.
const PAUSE: Duration = Duration::from_millis(50);
/// The classes of sandboxes.
const CLASSES: [&str; 2] = ["store", "node"];
/// The node that is drained.
const DRAINED: &str = "a";
/// The node through which an operator works.
const OTHER: &str = "b";

pub(crate) fn table(bin: &Path) -> Result<()> {
    let fleet = LocalFleet::with(&FleetOptions {
        has_store: true,
        programs: Some(bin.to_owned()),
        ..FleetOptions::default()
    });
    moves(&fleet)?;
    println!("\n### the drain of a node with {SANDBOXES} running sandboxes");
    println!("| class | total s | sandboxes/s |");
    println!("|---|---|---|");
    for class in CLASSES {
        fill(&fleet, class)?;
        let took = drain(&fleet)?.as_secs_f64();
        println!("| {class} | {took:.1} | {:.1} |", SANDBOXES as f64 / took);
        empty(&fleet)?;
    }
    Ok(())
}

/// Moves a sandbox of each class back and forth, each time until it has run a command.
fn moves(fleet: &LocalFleet) -> Result<()> {
    let mut moved = Vec::new();
    let mut answered = Vec::new();
    for class in CLASSES {
        let mut moves = Times::default();
        let mut commands = Times::default();
        let sandbox = match class {
            "store" => fleet.create_stored(DRAINED, class),
            _ => fleet.create_of_class_on(DRAINED, class, class),
        };
        sandbox.says("echo kept >/workspace/file");
        for turn in 0..MOVES {
            let to = [OTHER, DRAINED][turn % 2];
            let until = Instant::now() + LONG;
            // Only the request counts that moves it: one during a scheduled snapshot is refused.
            let begun = loop {
                let begun = Instant::now();
                let reply = sandbox.http.post(&sandbox.path("/move"), &json!({"node": to}));
                if reply.status == 200 {
                    ensure!(reply.json()["node"] == to, "{}", reply.text());
                    break begun;
                }
                ensure!(Instant::now() < until, "not moved: {}", reply.text());
                std::thread::sleep(PAUSE);
            };
            moves.push(begun.elapsed());
            ensure!(sandbox.says("cat /workspace/file") == "kept\n", "its file is lost");
            commands.push(begun.elapsed());
        }
        sandbox.delete();
        moved.push((class, moves));
        answered.push((class, commands));
    }
    rows("### the move of a running sandbox", &moved);
    rows("### the move of a running sandbox and its first command on the other node", &answered);
    Ok(())
}

/// Creates all sandboxes on the node.
fn fill(fleet: &LocalFleet, class: &str) -> Result<()> {
    let http = fleet.node(DRAINED).http();
    let cordons = fleet.only_on(DRAINED);
    for number in 0..SANDBOXES {
        let id = format!("{class}-{number}");
        let spec = json!({"id": id, "class": class, "memory_mib": MEMORY_MIB});
        let made = http.post("/v1/sandboxes", &spec).expect(201).json();
        ensure!(made["node"] == DRAINED, "placement chose another node: {made}");
    }
    drop(cordons);
    if class == "store" {
        wait_until("their first snapshots are in the object store", DRAIN_MAX, || {
            let all = listed(fleet);
            let is_pushed = |one: &&Value| one["last_pushed_snapshot"].is_string();
            (all.iter().filter(is_pushed).count() == SANDBOXES).then_some(())
        });
    }
    Ok(())
}

/// All sandboxes.
fn listed(fleet: &LocalFleet) -> Vec<Value> {
    let list = fleet.node(OTHER).http().get("/v1/sandboxes?limit=1000").expect(200).json();
    list.as_array().cloned().unwrap_or_default()
}

/// Drains the node.
fn drain(fleet: &LocalFleet) -> Result<Duration> {
    let http = fleet.node(OTHER).http();
    let path = format!("/v1/nodes/{DRAINED}/drain");
    let begun = Instant::now();
    http.post(&path, &json!({"timeout_s": DRAIN_TIMEOUT_S})).expect(200);
    let progress = wait_until("the drain ends", DRAIN_MAX, || {
        std::thread::sleep(PAUSE);
        let progress = http.get(&path).expect(200).json();
        (progress["running"] == false).then_some(progress)
    });
    let took = begun.elapsed();
    let moved = progress["moved"].as_u64().context("a number")?;
    ensure!(moved == SANDBOXES as u64, "not all were moved: {progress}");
    Ok(took)
}

/// Deletes all sandboxes, and makes the drained node available again.
fn empty(fleet: &LocalFleet) -> Result<()> {
    let http = fleet.node(OTHER).http();
    for one in listed(fleet) {
        let id = one["id"].as_str().context("an id")?;
        http.delete(&format!("/v1/sandboxes/{id}")).expect(200);
    }
    http.post(&format!("/v1/nodes/{DRAINED}/uncordon"), &json!({})).expect(200);
    wait_until("the node is available", LONG, || {
        let list = http.get("/v1/nodes").expect(200).json();
        let mut nodes = list["nodes"].as_array()?.iter();
        nodes.all(|node| node["cordoned"] == false).then_some(())
    });
    Ok(())
}
