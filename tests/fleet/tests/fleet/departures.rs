//! Sandboxes that cannot leave their node yet, or not to the node that was named.

use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, SOON, Sandbox, json, wait_until};
use std::time::{Duration, Instant};

/// Longer than a departure is tried before the log says so again.
const AWAY: Duration = Duration::from_secs(65);

/// Promises: FL36.
#[test]
fn a_move_is_refused_before_anything_is_done_when_the_target_cannot_restore_the_sandbox() {
    let fleet = LocalFleet::with(&FleetOptions {
        has_store: true,
        other_store_on: Some("c"),
        without_egress_proxy_on: Some("b"),
        ..FleetOptions::default()
    });
    let plain = fleet.create_of_class_on("a", "plain", "node");
    assert_eq!(plain.command("dev", "echo kept >/workspace/file; x=7")["exit_code"], 0);
    let by_name = fleet.create_with(
        "a",
        &json!({"id": "by-name", "memory_mib": 64, "network": {"allow": ["api.example"]}}),
    );
    let with_value = fleet.create_of_class_on("a", "with-value", "node");
    with_value.http.patch(&with_value.path("/network"), &json!({"network": "open"})).expect(200);
    let value = json!([{"host": "api.example", "header": "authorization", "value": "a"}]);
    let body = json!({"credentials_add": value});
    with_value.http.patch(&with_value.path("/network"), &body).expect(200);
    for (sandbox, to, reason) in [
        (&plain, "c", "another object store"),
        (&by_name, "b", "isolet-egress-proxy"),
        (&with_value, "b", "isolet-egress-proxy"),
    ] {
        let refused = sandbox.http.post(&sandbox.path("/move"), &json!({"node": to})).expect(409);
        assert_eq!(refused.error(), "no_target", "{}: {}", sandbox.id, refused.text());
        assert!(refused.text().contains(reason), "{}: {}", sandbox.id, refused.text());
        assert_eq!(fleet.owner(&sandbox.id).as_deref(), Some("a"));
    }
    let list = plain.http.get("/v1/store/snapshots").expect(200).json();
    assert_eq!(list["snapshots"], json!([]), "nothing was pushed");
    assert_eq!(plain.command("dev", "echo $x")["stdout"], "7\n", "the same shell");
    // What needs neither can go there.
    let moved = plain.http.post(&plain.path("/move"), &json!({"node": "b"})).expect(200).json();
    assert_eq!(moved["node"], "b", "{moved}");
    assert_eq!(plain.says("cat /workspace/file"), "kept\n");
}

/// Promises: FL36.
#[test]
fn a_departure_that_etcd_does_not_record_for_over_a_minute_loses_nothing() {
    let mut fleet = LocalFleet::with(&FleetOptions {
        has_store: true,
        lease_ttl_s: 5,
        ..FleetOptions::default()
    });
    fleet.create_stored("a", "store").says("echo kept >/workspace/file");
    fleet.create_of_class_on("a", "node", "node").says("echo kept >/workspace/file");
    let server = &mut fleet.node_mut("a").server;
    server.kill();
    // Time to end etcd in, after the slower of two sandboxes has come as far.
    server.launch_with("ISOLET_FAILPOINTS", "depart.pushed=delay(8000)");
    server.wait_until_ready();
    let movers = ["store", "node"].map(|id| fleet.move_in_background("c", id, "b"));
    let log_has =
        |fleet: &LocalFleet, text: &str| fleet.node("a").server.log().matches(text).count();
    wait_until("both have everything in the store", LONG, || {
        (log_has(&fleet, "failpoint: delayed") == 2).then_some(())
    });
    let members = fleet.etcd().addresses().len();
    let etcd = fleet.etcd.as_mut().expect("a fleet");
    (0..members).for_each(|index| etcd.kill(index));
    wait_until("both leave, and cannot say so", LONG, || {
        (log_has(&fleet, "and the fleet does not know it yet") == 2).then_some(())
    });
    let begun = Instant::now();
    wait_until("etcd was away for over a minute", LONG, || {
        assert_eq!(fleet.node("a").held().len(), 2, "their files stay until then");
        (begun.elapsed() > AWAY).then_some(())
    });
    fleet.etcd.as_mut().expect("a fleet").launch_all();
    for id in ["store", "node"] {
        let through = fleet.node("c").sandbox(id);
        assert_eq!(answered(&through, "cat /workspace/file"), "kept\n", "{id}");
    }
    movers.into_iter().for_each(|mover| drop(mover.join().expect("the move has ended")));
    wait_until("one copy of each is left", SOON, || {
        let held: usize = fleet.nodes.iter().map(|node| node.held().len()).sum();
        (held == 2).then_some(())
    });
    for id in ["store", "node"] {
        let through = fleet.node("c").sandbox(id);
        assert_eq!(answered(&through, "cat /workspace/file"), "kept\n", "{id} stays");
    }
}

/// The output of a command as soon as the sandbox can be reached.
fn answered(sandbox: &Sandbox, command: &str) -> String {
    let body = json!({"command": command});
    let done = wait_until("it answers", LONG, || {
        let reply = sandbox.http.post(&sandbox.path("/exec"), &body);
        (reply.status != 503).then(|| reply.expect(200).json())
    });
    done["stdout"].as_str().expect("text").to_owned()
}
