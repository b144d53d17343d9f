//! Sandboxes that only the object store has: the end of their lifetime, their usage, and what an operator
//! gives up.

use crate::durable::answered;
use crate::moves::{drained, sleep};
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, Sandbox, Value, json, wait_until};
use std::time::{SystemTime, UNIX_EPOCH};

fn fleet() -> LocalFleet {
    LocalFleet::with(&FleetOptions { has_store: true, ..FleetOptions::default() })
}

/// The number of ended sandboxes and the processor time that all nodes count.
fn usage(fleet: &LocalFleet) -> (u64, f64) {
    let of = |node: &isolet_fleet_tests::LocalNode| {
        let usage = node.http().get("/v1/usage").expect(200).json();
        let ended = usage["history_sandboxes"].as_u64().expect("a number");
        (ended, usage["cpu_seconds"].as_f64().expect("a number"))
    };
    fleet.nodes.iter().map(of).fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Puts sandboxes of node `a` to sleep, and has the object store alone have them.
fn store_away(fleet: &LocalFleet, all: &[&Sandbox]) {
    all.iter().for_each(|one| sleep(one));
    let progress = drained(fleet, "a", "b");
    assert_eq!(progress["stored"], json!(all.len()), "{progress}");
    assert!(fleet.node("a").held().is_empty());
}

/// Deletes the snapshot that was taken before the end of a sandbox.
fn delete_last_snapshot(fleet: &LocalFleet, id: &str) {
    let http = fleet.node("c").http();
    let snapshots = http.get("/v1/snapshots").expect(200).json();
    let is_last = |one: &&Value| one["sandbox"] == id && one["trigger"] == "destroy";
    let last = snapshots["snapshots"].as_array().expect("a list").iter().find(is_last);
    let last = last.unwrap_or_else(|| panic!("no snapshot before the end: {snapshots}"));
    http.delete(&format!("/v1/snapshots/{}", last["id"].as_str().expect("an id"))).expect(200);
}

/// The snapshots of the tenant in the object store.
fn stored(fleet: &LocalFleet) -> Vec<String> {
    let list = fleet.node("b").http().get("/v1/store/snapshots").expect(200).json();
    let all = list["snapshots"].as_array().expect("a list").iter();
    all.map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
}

/// Kills a server, and starts it with failpoints. It may reach one before anybody sees it answer.
fn relaunch_failing(fleet: &mut LocalFleet, name: &str, points: &str) {
    let server = &mut fleet.node_mut(name).server;
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", points);
    server.answers_or_ends();
}

/// Promises: FL35, FL50.
#[test]
fn the_lifetime_of_a_sandbox_ends_while_only_the_store_has_it() {
    let fleet = fleet();
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis();
    let begun_ms = now_ms();
    let [ends, copied, longer, deleted] =
        ["ends", "copied", "longer", "deleted"].map(|id| fleet.create_stored("a", id));
    for sandbox in [&ends, &copied, &longer, &deleted] {
        sandbox
            .says("i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo kept >/workspace/file");
    }
    // Their time begins when only the drain is left to do, which takes less.
    [&ends, &copied, &longer, &deleted].into_iter().for_each(sleep);
    for sandbox in [&ends, &copied] {
        let change = json!({"ttl_s": 40, "snapshot_on_destroy": sandbox.id == "copied"});
        sandbox.http.patch(&sandbox.path(""), &change).expect(200);
    }
    let last_of_ends = ends.info()["last_pushed_snapshot"].as_str().expect("an id").to_owned();
    longer.http.patch(&longer.path(""), &json!({"ttl_s": 4000})).expect(200);
    store_away(&fleet, &[&ends, &copied, &longer, &deleted]);
    assert_eq!(usage(&fleet), (0, 0.0), "no node has them, and none was deleted");
    let http = fleet.node("c").http();
    http.delete(&deleted.path("")).expect(200);
    let (ended, seconds) = usage(&fleet);
    assert!(ended == 1 && seconds > 0.0, "{ended} {seconds}");
    for sandbox in [&ends, &copied] {
        wait_until("its time is over", LONG, || fleet.owner(&sandbox.id).is_none().then_some(()));
        assert_eq!(http.get(&sandbox.path("")).expect(404).error(), "no_sandbox");
    }
    wait_until("all are counted", LONG, || (usage(&fleet).0 == 3).then_some(()));
    let written = fleet.nodes.iter().any(|node| {
        let log = node.http().get("/v1/audit?sandbox=ends").expect(200).text();
        log.contains("\"sandbox.destroyed\"") && log.contains("\"from\":\"server\"")
    });
    assert!(written, "the audit log has it");
    delete_last_snapshot(&fleet, "copied");
    // Nobody has deleted it: its snapshots stay for a day more.
    let discarded = || fleet.etcd().keys("isolet/discarded/");
    let of_ends = wait_until("only what may not be deleted yet is left", LONG, || {
        let [one]: [String; 1] = discarded().try_into().ok()?;
        Some(one)
    });
    let parts: Vec<&str> = of_ends.split('/').collect();
    let not_before: u128 = parts[2].parse().expect("a time");
    assert!(parts[4] == "ends" && not_before >= begun_ms + 24 * 3_600_000, "{of_ends}");
    assert!(stored(&fleet).contains(&last_of_ends), "{:?}", stored(&fleet));
    let list = fleet.etcd().etcdctl(&["get", "--print-value-only", &of_ends]);
    fleet.etcd().etcdctl(&["put", &of_ends.replace(parts[2], &format!("{:019}", 1)), list.trim()]);
    fleet.etcd().etcdctl(&["del", &of_ends]);
    wait_until("a day is over", LONG, || discarded().is_empty().then_some(()));
    assert!(!stored(&fleet).contains(&last_of_ends));
    // What has time left is as it was, and nothing is listed by its end once it runs again.
    let ending = || fleet.etcd().keys("isolet/ending/");
    assert_eq!(ending().len(), 1, "{:?}", ending());
    let through = fleet.node("b").sandbox("longer");
    assert_eq!(through.says("cat /workspace/file"), "kept\n");
    assert_eq!(ending(), [""; 0]);
}

/// Promises: FL36.
#[test]
fn giving_up_the_sandboxes_of_a_dead_node_keeps_those_that_the_store_has() {
    let mut fleet = fleet();
    let made = fleet.create_of_class_on("a", "moved", "node");
    made.says("echo kept >/workspace/file");
    drop(fleet.create_of_class_on("c", "lost", "node"));
    // The target takes the sandbox over, and its machine is lost before it has restored it.
    let server = &mut fleet.node_mut("c").server;
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "restore_stored.begun=delay(600000)");
    server.wait_until_ready();
    let through = fleet.node("b").sandbox("moved");
    let mover = fleet.move_in_background("b", "moved", "c");
    wait_until("node c has taken it over", LONG, || {
        (fleet.owner("moved").as_deref() == Some("c")).then_some(())
    });
    fleet.node_mut("c").server.lose_machine();
    fleet.wait_until_lost("c", "b");
    fleet.node("b").http().post("/v1/nodes/c/declare-dead", &json!({})).expect(200);
    let forget = || fleet.node("b").http().delete("/v1/nodes/c?release=true");
    let refused = forget().expect(409);
    assert_eq!(refused.error(), "node_owns_restorable");
    assert!(refused.text().contains("default/moved"), "{}", refused.text());
    assert_eq!(fleet.owner("lost"), None, "its files are lost, so its id is free");
    assert_eq!(fleet.owner("moved").as_deref(), Some("c"));
    let kept = wait_until("it is restored", LONG, || {
        let body = json!({"command": "cat /workspace/file"});
        let reply = through.http.post(&through.path("/exec"), &body);
        (reply.status != 503).then(|| reply.expect(200).json())
    });
    assert_eq!(kept["stdout"], "kept\n", "{kept}");
    assert_eq!(forget().expect(200).json()["released"], 0);
    drop(mover.join().expect("the move has ended"));
}

/// The node that looked restored the sandbox itself, although it was cordoned, and after a failure nothing
/// listed the sandbox any more.
/// Promises: FL35.
#[test]
fn the_end_of_a_stored_sandbox_survives_failures_of_nodes_that_may_restore_it() {
    let mut fleet = fleet();
    let copied = fleet.create_stored("a", "copied");
    copied.says("echo kept >/workspace/file");
    for name in ["b", "c"] {
        relaunch_failing(&mut fleet, name, "restore_stored.begun=error");
    }
    sleep(&copied);
    let change = json!({"ttl_s": 40, "snapshot_on_destroy": true});
    copied.http.patch(&copied.path(""), &change).expect(200);
    store_away(&fleet, &[&copied]);
    let ending = |fleet: &LocalFleet| fleet.etcd().keys("isolet/ending/");
    assert_eq!(ending(&fleet).len(), 1);
    wait_until("a restore fails, and the sandbox is given back", LONG, || {
        let has_failed = |name: &str| fleet.node(name).server.log().contains("not restored");
        let owner = fleet.etcd().get("isolet/owners/default/copied").expect("an owner");
        let is_back = owner["custody"] == "stored" && ending(&fleet).len() == 1;
        (is_back && ["b", "c"].into_iter().any(has_failed)).then_some(())
    });
    // One of them is killed after it has taken the sandbox over.
    for name in ["b", "c"] {
        relaunch_failing(&mut fleet, name, "restore_stored.begun=abort");
    }
    let killed = wait_until("a node has taken it over", LONG, || {
        let owner = fleet.etcd().get("isolet/owners/default/copied").expect("an owner");
        (owner["custody"] == "fetched").then(|| owner["node"].as_str().map(str::to_owned))?
    });
    wait_until("it is killed", LONG, || fleet.node_mut(&killed).server.has_ended().then_some(()));
    wait_until("the sandbox has ended", LONG, || {
        // On a slow machine the lease of the first one ends, and the other one is killed in its place.
        for name in ["b", "c"] {
            let server = &mut fleet.node_mut(name).server;
            if server.has_ended() {
                server.launch();
            }
        }
        fleet.owner("copied").is_none().then_some(())
    });
    assert_eq!(ending(&fleet), [""; 0]);
    delete_last_snapshot(&fleet, "copied");
    assert!(!fleet.node("a").server.log().contains("taken over"), "it is cordoned");
}

/// Nodes order the snapshots of a sandbox by what happened, whatever their clocks say. The clock of a node
/// that was behind that of the former one made it keep the former one's snapshot as the newest.
/// Promises: FL34, FL36.
#[test]
fn a_node_whose_clock_is_behind_loses_nothing_when_it_gives_a_sandbox_away() {
    let fleet = fleet();
    let made = fleet.create_stored("a", "box");
    made.says("echo first >/workspace/file");
    store_away(&fleet, &[&made]);
    // As if the clock of node `a` had been an hour ahead.
    let key = fleet.etcd().keys("isolet/").into_iter().find(|key| key.ends_with("/box/pushed"));
    let key = key.expect("the record of its snapshots");
    let mut record = fleet.etcd().get(&key).expect("JSON");
    for one in record["snapshots"].as_array_mut().expect("a list") {
        let at = one["snapshot"]["created_at_ms"].as_i64().expect("a time");
        one["snapshot"]["created_at_ms"] = json!(at + 3_600_000);
    }
    fleet.etcd().etcdctl(&["put", &key, &record.to_string()]);
    let on_b = fleet.node("b").sandbox("box");
    answered(&on_b, "echo second >/workspace/file");
    assert_eq!(fleet.owner("box").as_deref(), Some("b"));
    let moved = wait_until("it is moved", LONG, || {
        let reply = on_b.http.post(&on_b.path("/move"), &json!({"node": "c"}));
        (reply.status == 200).then(|| reply.json())
    });
    assert_eq!(moved["node"], "c", "{moved}");
    let first = answered(&fleet.node("c").sandbox("box"), "cat /workspace/file");
    assert_eq!(first.json()["stdout"], "second\n");
}
