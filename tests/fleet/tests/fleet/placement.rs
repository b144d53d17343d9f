//! Where new sandboxes are placed.

use crate::NODES;
use isolet_fleet_tests::{FleetOptions, LocalFleet, StoreFailure};
use isolet_kit::{LONG, SOON, json, wait_until};

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

/// The number of placements with a result that a node has counted.
fn placements(fleet: &LocalFleet, node: &str, result: &str) -> u64 {
    let metrics = fleet.node(node).http().get("/metrics").expect(200).text();
    let name = format!("isolet_fleet_placements_total{{result=\"{result}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&*name));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// Every create that was placed on a node without space on its disk failed, although others had room.
/// Promises: FL52.
#[test]
fn a_node_without_space_gets_nothing_new_and_a_create_that_it_refuses_goes_on() {
    let options = FleetOptions {
        // More than there is.
        config_on: Some(("a", "free_space_floor_mib = 1000000000\n")),
        ..FleetOptions::default()
    };
    let fleet = LocalFleet::with(&options);
    let create = |through: &str, id: &str| {
        let spec = json!({"id": id, "memory_mib": 64});
        fleet.node(through).http().post("/v1/sandboxes", &spec).expect(201);
        assert_ne!(fleet.owner(id).as_deref(), Some("a"));
    };
    for round in 0..4 {
        NODES.iter().for_each(|node| create(node, &format!("{node}{round}")));
    }
    // As if it had filled up a moment ago, and the others did not know it yet. Only `a` and `c` may get
    // something, and `a` has more memory free.
    let key = "isolet/nodes/live/a";
    let mut record = fleet.etcd().get(key).expect("a record");
    assert_eq!(record["load"]["is_full"], true, "{record}");
    record["load"]["is_full"] = json!(false);
    fleet.etcd().etcdctl(&["put", "--ignore-lease", key, &record.to_string()]);
    cordon(&fleet, "b", true);
    let before = placements(&fleet, "b", "refused");
    let mut count = 0;
    wait_until("one is refused", LONG, || {
        count += 1;
        create("b", &format!("late{count}"));
        (placements(&fleet, "b", "refused") > before).then_some(())
    });
    cordon(&fleet, "b", false);
}

/// Promises: FL53.
#[test]
fn a_node_whose_first_pushes_do_not_advance_gets_no_more_of_the_class() {
    let mut fleet = LocalFleet::with(&FleetOptions { has_store: true, ..FleetOptions::default() });
    let server = &mut fleet.node_mut("a").server;
    server.stop();
    server.launch_with("ISOLET_FAILPOINTS", "pushes.stuck=delay(3000)");
    server.wait_until_ready();
    wait_until("it accepts sandboxes", LONG, || {
        let nodes = fleet.node("b").http().get("/v1/nodes/a").expect(200).json();
        (nodes["state"] == "ready").then_some(())
    });
    let fails = fleet.node("a").fail_store(StoreFailure::Refuses);
    let stuck = fleet.create_of_class_on("a", "stuck", "store");
    let mut events = stuck.http.try_open("GET", &stuck.path("/events"), None).expect("an answer");
    assert_eq!(stuck.info()["durable"], false);
    wait_until("the node says so", LONG, || {
        let record = fleet.etcd().get("isolet/nodes/live/a").expect("a record");
        (record["load"]["pushes_stuck"] == true).then_some(())
    });
    let mut next = || events.event().expect("it goes on").name;
    while next() != "snapshot_failed" {}
    let a = fleet.node("a").http();
    let metrics = a.get("/metrics").expect(200).text();
    assert!(metrics.contains("isolet_fleet_not_durable_sandboxes 1"), "{metrics}");
    let spec = json!({"id": "other", "memory_mib": 64, "class": "store"});
    a.post("/v1/sandboxes", &spec).expect(201);
    assert_ne!(fleet.owner("other").as_deref(), Some("a"));
    drop(fails);
    wait_until("it is pushed", LONG, || (stuck.info()["durable"] == true).then_some(()));
    wait_until("the node gets them again", LONG, || {
        let record = fleet.etcd().get("isolet/nodes/live/a").expect("a record");
        (record["load"]["pushes_stuck"] == false).then_some(())
    });
}
