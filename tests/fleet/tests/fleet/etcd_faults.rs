//! Members of etcd that die, a majority that is missing, and answers that come late.

use crate::{NODES, ROUNDS};
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, Reply, json, wait_until};
use std::time::Duration;

/// Creates a sandbox through a node.
fn create(fleet: &LocalFleet, node: &str, id: &str) -> Reply {
    fleet.node(node).http().post("/v1/sandboxes", &json!({"id": id, "memory_mib": 64}))
}

/// Creates a sandbox as soon as the fleet takes new ones.
fn create_in_time(fleet: &LocalFleet, node: &str, id: &str) {
    wait_until("the fleet takes new sandboxes", LONG, || {
        let made = create(fleet, node, id);
        match (made.status, made.error().as_str()) {
            // Repeated after an answer that was lost.
            (201, _) | (409, _) => Some(()),
            (503, "fleet_unavailable") => None,
            _ => panic!("{}: {}", made.status, made.text()),
        }
    });
}

/// A known sandbox of each node works through the next node.
fn known_work(fleet: &LocalFleet) {
    for (index, node) in NODES.iter().enumerate() {
        let through = fleet.node(NODES[(index + 1) % NODES.len()]).sandbox(node);
        assert_eq!(through.says("echo works"), "works\n");
    }
}

/// The sandbox of the class `store` that each fleet has.
const STORED: &str = "stored";

/// The sandbox of the class `store` runs on where it was, or continues there.
fn stored_continues(fleet: &LocalFleet) {
    let through = fleet.node("b").sandbox(STORED);
    wait_until("it continues", LONG, || {
        let command = json!({"command": "echo $x"});
        let reply = through.post("/sessions/dev/exec", &command);
        if reply.status == 503 {
            assert_eq!(reply.error(), "suspended", "{}", reply.text());
            return None;
        }
        assert_eq!(reply.expect(200).json()["stdout"], "7\n", "the same shell");
        Some(())
    });
    assert_eq!(fleet.owner(STORED).as_deref(), Some("a"), "nobody has taken it over");
}

fn fleet_with_known(lease_ttl_s: u32) -> LocalFleet {
    let options = FleetOptions { has_store: true, lease_ttl_s, ..FleetOptions::default() };
    let fleet = LocalFleet::with(&options);
    NODES.iter().for_each(|node| drop(fleet.create_on(node, node)));
    let stored = fleet.create_stored("a", STORED);
    assert_eq!(stored.command("dev", "x=7")["exit_code"], 0);
    known_work(&fleet);
    fleet
}

/// All nodes list what was created.
fn all_are_there(fleet: &LocalFleet, ids: &[String]) {
    stored_continues(fleet);
    let mut expected: Vec<String> = NODES.iter().map(|node| (*node).to_owned()).collect();
    expected.push(STORED.to_owned());
    expected.extend_from_slice(ids);
    expected.sort();
    for node in &fleet.nodes {
        assert_eq!(node.server.ids(&node.http()), expected, "{}", node.name);
    }
}

/// Promises: FL11.
#[test]
fn a_member_or_the_leader_of_etcd_may_die() {
    let mut fleet = fleet_with_known(5);
    let mut ids = Vec::new();
    for round in 0..2 * ROUNDS {
        let leader = fleet.etcd().wait_for_leader();
        let victim = if round % 2 == 0 { (leader + 1) % 3 } else { leader };
        fleet.etcd.as_mut().expect("a fleet").kill(victim);
        known_work(&fleet);
        let id = format!("new{round}");
        create_in_time(&fleet, NODES[round % NODES.len()], &id);
        ids.push(id);
        fleet.etcd.as_mut().expect("a fleet").launch_all();
        stored_continues(&fleet);
    }
    all_are_there(&fleet, &ids);
}

/// Promises: FL11.
#[test]
fn without_a_majority_known_sandboxes_work_and_new_ones_are_refused() {
    let mut fleet = fleet_with_known(5);
    let mut ids = Vec::new();
    for round in 0..ROUNDS {
        let etcd = fleet.etcd.as_mut().expect("a fleet");
        let members = [round % 3, (round + 1) % 3];
        members.iter().for_each(|member| etcd.kill(*member));
        known_work(&fleet);
        let id = format!("new{round}");
        let refused = create(&fleet, NODES[round % NODES.len()], &id).expect(503);
        assert_eq!(refused.error(), "fleet_unavailable", "{}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
        let listed = fleet.node("a").http().get("/v1/sandboxes").expect(200);
        assert_eq!(listed.header("isolet-missing"), Some("stored"), "{:?}", listed.headers);
        known_work(&fleet);
        fleet.etcd.as_mut().expect("a fleet").launch_all();
        stored_continues(&fleet);
        create_in_time(&fleet, NODES[round % NODES.len()], &id);
        ids.push(id);
    }
    known_work(&fleet);
    all_are_there(&fleet, &ids);
}

/// Known sandboxes ask etcd nothing; new ones wait for it.
///
/// Promises: FL11.
#[test]
fn a_slow_etcd_delays_new_sandboxes_only_and_ends_no_membership() {
    // Many times what etcd is delayed, and more than a busy machine adds.
    let fleet = fleet_with_known(15);
    let registrations = |fleet: &LocalFleet| {
        NODES.map(|node| fleet.etcd().created_at(&format!("isolet/nodes/live/{node}")))
    };
    let before = registrations(&fleet);
    let mut ids = Vec::new();
    for round in 0..ROUNDS {
        let delays: Vec<_> =
            fleet.nodes.iter().map(|node| node.delay_etcd(3, Duration::from_millis(200))).collect();
        known_work(&fleet);
        let id = format!("new{round}");
        create_in_time(&fleet, NODES[round % NODES.len()], &id);
        ids.push(id);
        stored_continues(&fleet);
        drop(delays);
    }
    known_work(&fleet);
    all_are_there(&fleet, &ids);
    assert_eq!(registrations(&fleet), before, "no lease has ended");
}
