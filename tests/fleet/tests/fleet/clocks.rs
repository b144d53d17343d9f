//! A node whose wall clock is wrong deletes nothing that another one may have.

use crate::durable::answered;
use crate::moves::{drained, sleep};
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, json, wait_until};

/// A clock that was a year ahead ended every sandbox that only the object store had and that had a `ttl_s`,
/// and deleted its snapshots.
/// Promises: FL50.
#[test]
fn a_node_whose_clock_is_ahead_ends_nothing_that_the_object_store_has() {
    let fleet = LocalFleet::with(&FleetOptions {
        has_store: true,
        lease_ttl_s: 30,
        // The nodes that look for ended lifetimes are the first two of the list.
        wall_clock_on: Some("a"),
        ..FleetOptions::default()
    });
    let made = fleet.create_stored("c", "box");
    made.says("echo kept >/workspace/file");
    made.http.patch(&made.path(""), &json!({"ttl_s": 7200})).expect(200);
    sleep(&made);
    let progress = drained(&fleet, "c", "b");
    assert_eq!(progress["stored"], 1, "{progress}");
    let stored = || {
        let list = fleet.node("b").http().get("/v1/store/snapshots").expect(200).json();
        list["snapshots"].as_array().expect("a list").len()
    };
    let before = stored();
    // Not longer than the certificates of the nodes are valid.
    fleet.step_clock(86_400);
    wait_until("node a has looked", LONG, || {
        assert!(fleet.owner("box").is_some(), "it was ended");
        fleet.node("a").server.log().contains("ends no sandbox").then_some(())
    });
    // A request does not have it restored to be ended at once either.
    let on_a = fleet.node("a").sandbox("box");
    let body = json!({"command": "cat /workspace/file"});
    let refused = on_a.http.post(&on_a.path("/exec"), &body).expect(503);
    assert_eq!(refused.error(), "not_restored");
    assert!(refused.text().contains("s ahead of that of the object store"), "{}", refused.text());
    assert_eq!(stored(), before);
    fleet.step_clock(0);
    let first = answered(&fleet.node("b").sandbox("box"), "cat /workspace/file");
    assert_eq!(first.json()["stdout"], "kept\n");
}
