//! A rolling upgrade: each node in turn is drained, restarted and used again, while clients write.

use crate::moves::drained;
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, SOON, Sandbox, Value, json, wait_until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Errors that a move may cause, each with `Retry-After` or with the promise that nothing was done.
const EXPECTED: [&str; 5] =
    ["owner_moved", "restoring", "node_unreachable", "fleet_unavailable", "moving"];

/// Writes numbers through all nodes, each in a file of its own, until `stop` is set. Returns the
/// last number whose write was acknowledged.
fn write_until(stop: &AtomicBool, through: &[Sandbox]) -> usize {
    let mut number = 0;
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        wait_until("the number is written", LONG, || {
            turn += 1;
            let sandbox = &through[turn % through.len()];
            let path = sandbox.path(&format!("/files/number-{number}"));
            let text = number.to_string();
            // A node that is restarted does not answer, or not completely: the next one is asked.
            let reply = sandbox.http.try_send("PUT", &path, Some(text.as_bytes())).ok()?;
            match reply.status {
                200..=204 => Some(()),
                503 => {
                    let code = reply.error();
                    assert!(EXPECTED.contains(&&*code), "{}", reply.text());
                    None
                }
                _ => panic!("{}: {}", reply.status, reply.text()),
            }
        });
    }
    number
}

/// Promises: FL37.
#[test]
fn three_nodes_are_upgraded_one_after_the_other_under_load() {
    let config = "snapshot_every_s_min = 1\n".to_owned();
    let options = FleetOptions { has_store: true, config, ..FleetOptions::default() };
    let mut fleet = LocalFleet::with(&options);
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for (index, class) in ["store", "node", "store", "node"].into_iter().enumerate() {
        let id = format!("box-{index}");
        let first = fleet.node(crate::NODES[index % 3]).http();
        let spec = json!({"id": id, "memory_mib": 64, "class": class, "sleep_after_s": 0});
        first.post("/v1/sandboxes", &spec).expect(201);
        let through: Vec<Sandbox> = crate::NODES.map(|node| fleet.node(node).sandbox(&id)).into();
        let stop = Arc::clone(&stop);
        writers.push(std::thread::spawn(move || write_until(&stop, &through)));
    }
    for name in crate::NODES {
        let other = if name == "a" { "b" } else { "a" };
        let progress = drained(&fleet, name, other);
        assert_eq!(progress["remaining"], 0, "{progress}");
        assert_eq!(progress["left"], Value::Array(Vec::new()), "{progress}");
        let is_empty = || fleet.node(name).held().is_empty().then_some(());
        wait_until("the drained node has no files", SOON, is_empty);
        fleet.node_mut(name).server.restart();
        let http = fleet.node(other).http();
        http.post(&format!("/v1/nodes/{name}/uncordon"), &json!({})).expect(200);
        wait_until("it takes sandboxes again", LONG, || {
            let node = http.get(&format!("/v1/nodes/{name}")).expect(200).json();
            (node["state"] == "ready" && node["cordoned"] == false).then_some(())
        });
    }
    stop.store(true, Ordering::Relaxed);
    for (index, writer) in writers.into_iter().enumerate() {
        let last = writer.join().expect("no panic");
        assert!(last > 0, "it wrote something");
        let sandbox = fleet.node("c").sandbox(&format!("box-{index}"));
        let whole = "for file in number-*; do \
                     [ \"$(cat $file)\" = \"${file#number-}\" ] && echo $file; done | wc -l";
        let count = sandbox.says(whole);
        assert_eq!(count.trim(), last.to_string(), "each acknowledged file is there, and whole");
    }
    let holders: usize = fleet.nodes.iter().map(|node| node.held().len()).sum();
    assert_eq!(holders, 4, "each sandbox is on one node");
}
