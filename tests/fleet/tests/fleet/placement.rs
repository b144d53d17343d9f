//! Where new sandboxes are placed.

use crate::NODES;
use isolet_fleet_tests::LocalFleet;
use isolet_kit::{SOON, json, wait_until};

/// Excludes a node from placement, or includes it again, through another node.
fn cordon(fleet: &LocalFleet, node: &str, is_cordoned: bool) {
    let word = if is_cordoned { "cordon" } else { "uncordon" };
    let output = fleet.node("b").server.command(&["node", word, node]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The memory of this machine, in MiB.
fn memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("it is there");
    let line = text.lines().find(|line| line.starts_with("MemTotal:")).expect("a line");
    let kib: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kib / 1024
}

/// Promises: FL13, FW6.
#[test]
fn a_cordoned_node_gets_no_sandbox_and_a_full_fleet_says_what_is_missing() {
    let options = isolet_fleet_tests::FleetOptions {
        config: "[limits_max]\nmemory_mib = 100000000\n".to_owned(),
        ..isolet_fleet_tests::FleetOptions::default()
    };
    let fleet = LocalFleet::with(&options);
    // A node registers before it answers, and takes no sandboxes until then.
    for node in NODES {
        let key = format!("isolet/nodes/live/{node}");
        let state = |value: Option<isolet_kit::Value>| value.expect("a record")["state"].clone();
        assert_eq!(state(fleet.etcd().first_value(&key)), "starting", "{node}");
        assert_eq!(state(fleet.etcd().get(&key)), "ready", "{node}");
    }
    let a = fleet.node("a").http();
    let kept = fleet.create_on("a", "kept");
    let record = fleet.etcd().get("isolet/owners/default/kept").expect("a record");
    let text = record.to_string();
    assert!(text.contains("\"region\":\"default\"") && text.contains("spread"), "{text}");
    cordon(&fleet, "a", true);
    // Another node learns of it a moment later.
    let mut count = 0;
    wait_until("new sandboxes go to other nodes", SOON, || {
        count += 1;
        let id = format!("new{count}");
        a.post("/v1/sandboxes", &json!({"id": id, "memory_mib": 64})).expect(201);
        fleet.owner(&id).filter(|owner| owner != "a")
    });
    assert_eq!(kept.says("echo runs"), "runs\n", "the sandboxes of a cordoned node stay");
    // A request that no node can meet.
    let refused = a.post("/v1/sandboxes", &json!({"memory_mib": memory_mib() + 1})).expect(503);
    assert_eq!(refused.error(), "fleet_full");
    assert!(refused.text().contains("MiB of memory"), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    NODES.iter().for_each(|node| cordon(&fleet, node, true));
    let refused = wait_until("no node accepts sandboxes", SOON, || {
        let made = a.post("/v1/sandboxes", &json!({"memory_mib": 64}));
        (made.status != 201).then_some(made)
    });
    assert_eq!(refused.expect(503).error(), "fleet_full");
    NODES.iter().for_each(|node| cordon(&fleet, node, false));
    wait_until("they accept sandboxes again", SOON, || {
        (a.post("/v1/sandboxes", &json!({"memory_mib": 64})).status == 201).then_some(())
    });
}
