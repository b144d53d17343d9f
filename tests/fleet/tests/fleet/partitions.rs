//! Nodes that packets do not reach any more.

use crate::NODES;
use crate::durable::answered;
use isolet_fleet_tests::{CutDirection, FleetOptions, LocalFleet};
use isolet_kit::{LONG, json, wait_until};

fn fleet(has_store: bool) -> LocalFleet {
    let options = FleetOptions { has_store, lease_ttl_s: 5, ..FleetOptions::default() };
    let fleet = LocalFleet::with(&options);
    for node in NODES {
        let sandbox = fleet.create_on(node, node);
        assert_eq!(sandbox.command("dev", "x=7")["exit_code"], 0);
    }
    // Every node has used every other one.
    for node in &fleet.nodes {
        for id in NODES {
            assert_eq!(node.sandbox(id).says("echo works"), "works\n");
        }
    }
    fleet
}

/// The sandbox of the class `store` of a node.
fn stored(node: &str) -> String {
    format!("stored-{node}")
}

/// Cuts each node from etcd until its lease has ended.
fn cut_from_etcd(directions: [CutDirection; 3]) {
    let fleet = fleet(true);
    for node in NODES {
        fleet.create_stored(node, &stored(node)).says("echo unsaved >/workspace/file");
    }
    let etcd = fleet.etcd().addresses();
    for (index, direction) in directions.into_iter().enumerate() {
        let name = NODES[index];
        let node = fleet.node(name);
        let other = fleet.node(NODES[(index + 1) % 3]);
        let live = format!("isolet/nodes/live/{name}");
        let cut = node.cut("etcd", &etcd, direction);
        let id = format!("new-{name}");
        let refused = node.http().post("/v1/sandboxes", &json!({"id": id})).expect(503);
        assert_eq!(refused.error(), "fleet_unavailable", "{}", refused.text());
        wait_until("its lease ends", LONG, || {
            fleet.etcd().created_at(&live).is_none().then_some(())
        });
        // It continues to run what it has, and forwards to the nodes that it knows.
        assert_eq!(node.sandbox(name).command("dev", "echo $x")["stdout"], "7\n");
        assert_eq!(node.sandbox(other.name).says("echo works"), "works\n");
        assert_eq!(other.sandbox(name).says("echo works"), "works\n");
        // One of the class `store` is frozen, and another node restores it.
        let frozen = node.sandbox(&stored(name));
        let refused = frozen.post("/exec", &json!({"command": "true"})).expect(503);
        assert_eq!(refused.error(), "suspended", "{}", refused.text());
        let restored = answered(&other.sandbox(&stored(name)), "ls /workspace");
        assert!(restored.header("isolet-restored-from").is_some(), "{:?}", restored.headers);
        assert_eq!(fleet.owner(&stored(name)).as_deref(), Some(other.name));
        // The others take new sandboxes, and place none there.
        let made = other.http().post("/v1/sandboxes", &json!({"id": id, "memory_mib": 64}));
        made.expect(201);
        assert_ne!(fleet.owner(&id).as_deref(), Some(name));
        drop(cut);
        wait_until("it is a member again", LONG, || fleet.etcd().created_at(&live));
        let again = format!("again-{name}");
        wait_until("it takes new sandboxes", LONG, || {
            let spec = json!({"id": again, "memory_mib": 64});
            (node.http().post("/v1/sandboxes", &spec).status == 201).then_some(())
        });
        assert_eq!(fleet.owner(name).as_deref(), Some(name), "nobody has taken it over");
        assert_eq!(other.sandbox(name).command("dev", "echo $x")["stdout"], "7\n");
        // What others created while it was away is found.
        assert_eq!(node.sandbox(&id).says("echo found"), "found\n");
        // Its copy ends, and its clients reach the restored one.
        wait_until("the restored sandbox answers", LONG, || {
            let far = node.sandbox(&stored(name));
            (far.http.get(&far.path("")).status == 200).then_some(())
        });
        assert_eq!(fleet.owner(&stored(name)).as_deref(), Some(other.name));
    }
}

/// Promises: FL2, FL3, FL10, FL21.
#[test]
fn a_node_that_is_cut_from_etcd_keeps_its_sandboxes_and_takes_no_new_ones() {
    cut_from_etcd([CutDirection::Both; 3]);
}

/// Promises: FL2, FL10, FL21.
#[test]
fn a_one_way_cut_from_etcd_is_a_cut() {
    cut_from_etcd([CutDirection::Outgoing, CutDirection::Incoming, CutDirection::Outgoing]);
}

/// All nodes are cut from one another at once, one of them in one direction only.
///
/// Promises: FL10, FW3, FW7.
#[test]
fn nodes_that_are_cut_from_one_another_say_so_and_recover() {
    let fleet = fleet(false);
    let directions = [CutDirection::Both, CutDirection::Outgoing, CutDirection::Incoming];
    let cuts: Vec<_> = fleet
        .nodes
        .iter()
        .zip(directions)
        .map(|(node, direction)| {
            node.cut("peers", &fleet.addresses_of_others(node.name), direction)
        })
        .collect();
    std::thread::scope(|scope| {
        for (index, node) in fleet.nodes.iter().enumerate() {
            let other = NODES[(index + 1) % 3];
            scope.spawn(move || {
                let far = node.sandbox(other);
                let refused = far.http.get(&far.path("")).expect(503);
                assert_eq!(refused.error(), "node_unreachable", "{}", refused.text());
                let list = node.http().get("/v1/sandboxes").expect(200);
                let missing = list.header("isolet-unreachable-nodes").unwrap_or_default();
                assert!(missing.contains(other), "{missing}");
                assert_eq!(node.sandbox(node.name).says("echo works"), "works\n");
            });
        }
    });
    drop(cuts);
    for node in &fleet.nodes {
        for id in NODES {
            wait_until("the nodes reach one another", LONG, || {
                let far = node.sandbox(id);
                (far.http.get(&far.path("")).status == 200).then_some(())
            });
            assert_eq!(node.sandbox(id).command("dev", "echo $x")["stdout"], "7\n");
        }
    }
}
