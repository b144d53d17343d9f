//! Sandboxes of the class `store` under faults of machines and of the object store.

use crate::durable::{answered, fleet, push};
use crate::{NODES, ROUNDS};
use isolet_fleet_tests::StoreFailure;
use isolet_kit::{LONG, json, wait_until};

/// The server of a node, its agents and its lease guard die at the same time, three times.
///
/// Promises: FL2, FL21.
#[test]
fn a_lost_machine_is_replaced_and_its_copy_ends_when_it_returns() {
    let mut fleet = fleet();
    fleet.create_stored(NODES[0], "box");
    for round in 0..ROUNDS {
        let lost = NODES[round % NODES.len()];
        let next = NODES[(round + 1) % NODES.len()];
        let through = fleet.node(next).sandbox("box");
        through.says("echo line >>/workspace/file");
        let snapshot = push(&through);
        fleet.node_mut(lost).server.lose_machine();
        let first = answered(&through, "wc -l </workspace/file");
        assert_eq!(first.json()["stdout"], format!("{}\n", round + 1));
        assert_eq!(first.header("isolet-restored-from"), Some(&*snapshot), "{:?}", first.headers);
        assert_eq!(fleet.owner("box").as_deref(), Some(next));
        fleet.node_mut(lost).server.launch();
        wait_until("the former copy is gone", LONG, || {
            fleet.node(lost).held().is_empty().then_some(())
        });
        assert_eq!(fleet.node(lost).sandbox("box").says("cat /workspace/file | wc -l").len(), 2);
    }
}

/// Nothing knew any more of snapshots that the store had not deleted when it was asked.
/// Promises: FL51.
#[test]
fn snapshots_of_a_sandbox_that_is_deleted_while_the_store_fails_are_deleted_later() {
    let fleet = fleet();
    let made = fleet.create_stored("a", "box");
    let fails = fleet.node("a").fail_store(StoreFailure::Refuses);
    made.http.delete(&made.path("")).expect(200);
    let discarded = || fleet.etcd().keys("isolet/discarded/");
    wait_until("its id is free, and its snapshots are listed", LONG, || {
        (fleet.owner("box").is_none() && !discarded().is_empty()).then_some(())
    });
    wait_until("the node has given up", LONG, || {
        let log = fleet.node("a").server.log();
        log.contains("not deleted from the store yet").then_some(())
    });
    drop(fails);
    wait_until("no snapshot is left", LONG, || {
        let list = fleet.node("b").http().get("/v1/store/snapshots").expect(200).json();
        list["snapshots"].as_array().expect("a list").is_empty().then_some(())
    });
    wait_until("nothing is listed any more", LONG, || discarded().is_empty().then_some(()));
}

/// Promises: FL20, FL21.
#[test]
fn an_object_store_that_fails_delays_pushes_and_restores_and_loses_nothing() {
    let mut fleet = fleet();
    let made = fleet.create_stored("a", "box");
    for (round, failure) in StoreFailure::ALL.into_iter().enumerate() {
        made.says("echo line >>/workspace/file");
        let taken = made.post("/snapshots", &json!({})).expect(201).json();
        let path = format!("/v1/snapshots/{}/push", taken["id"].as_str().expect("an id"));
        let fails: Vec<_> = fleet.nodes.iter().map(|node| node.fail_store(failure)).collect();
        let pushing = std::thread::spawn({
            let http = made.http.clone();
            let path = path.clone();
            move || http.post(&path, &json!({}))
        });
        let lines = fleet.node("b").sandbox("box").says("wc -l </workspace/file");
        assert_eq!(lines, format!("{}\n", round + 1), "it works while the store fails");
        assert_ne!(made.info()["last_pushed_snapshot"], taken["id"], "{failure:?}");
        drop(fails);
        let done = pushing.join().expect("no panic");
        if done.status != 200 {
            assert_eq!((done.status, done.error().as_str()), (502, "snapshot_store_failed"));
            made.http.post(&path, &json!({})).expect(200);
        }
    }
    // It cannot be restored while the store fails, and is restored afterwards.
    fleet.node_mut("a").server.lose_machine();
    fleet.wait_until_lost("a", "b");
    let fails: Vec<_> =
        fleet.nodes.iter().map(|node| node.fail_store(StoreFailure::Errors)).collect();
    let through = fleet.node("b").sandbox("box");
    let refused = through.http.get(&through.path("")).expect(503);
    assert!(["not_restored", "restoring"].contains(&&*refused.error()), "{}", refused.text());
    drop(fails);
    let first = answered(&through, "wc -l </workspace/file");
    assert_eq!(first.json()["stdout"], "3\n");
    fleet.node_mut("a").server.launch();
    wait_until("the former copy is gone", LONG, || fleet.node("a").held().is_empty().then_some(()));
}
