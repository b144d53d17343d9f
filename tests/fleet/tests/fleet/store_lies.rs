//! A store that answers wrongly about what it has: "not found", an earlier list, a page of a proxy. The record in
//! etcd is the truth, so nothing older is restored. It once was, and the newest snapshot was deleted afterwards.

use crate::durable::{answered, fleet, push};
use isolet_fleet_tests::{LocalFleet, StoreFault};
use isolet_kit::s3::{Fault, Lie};
use isolet_kit::{LONG, Reply, Sandbox, json, wait_until};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Tells each lie once, one after the other.
fn lies() -> impl Fn(&str, &str, u64) -> Fault + Send + 'static {
    let left = Mutex::new(Lie::ALL.map(|lie| (lie, true)));
    move |method, path, _| {
        let mut left = left.lock().expect("no panic");
        let told = left.iter_mut().find_map(|(lie, left)| {
            let fault = lie.about(method, path).filter(|_| *left)?;
            *left = false;
            Some(fault)
        });
        told.unwrap_or(Fault::None)
    }
}

/// Writes a file and pushes a snapshot with it. Returns the id, and the keys of its objects.
fn pushed(fleet: &LocalFleet, sandbox: &Sandbox, text: &str) -> (String, BTreeSet<String>) {
    let store = fleet.store.as_ref().expect("a store");
    sandbox.says(&format!("echo {text} >/workspace/file"));
    let before: BTreeSet<String> = store.keys().into_iter().collect();
    let id = push(sandbox);
    (id, store.keys().into_iter().filter(|key| !before.contains(key)).collect())
}

/// Requests for an object, by the path without the bucket.
fn is_of(keys: &BTreeSet<String>, path: &str) -> bool {
    keys.iter().any(|key| path.ends_with(key.as_str()))
}

/// Starts a server that reads again for a second instead of half a minute.
fn hurries(fleet: &mut LocalFleet, node: &str) {
    let server = &mut fleet.node_mut(node).server;
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "restore_stored.read_again=delay(1000)");
    server.wait_until_ready();
}

/// The first answer that is not about a restore that is under way.
fn settled(sandbox: &Sandbox, mut ask: impl FnMut(&Sandbox) -> Reply) -> Reply {
    wait_until("it is answered", LONG, || {
        let reply = ask(sandbox);
        let waits = reply.status == 503 && reply.error() != "not_restored";
        (!waits).then_some(reply)
    })
}

/// Promises: FL21, FL38.
#[test]
fn a_takeover_outlasts_wrong_answers_of_the_store_and_restores_the_newest_snapshot() {
    let mut fleet = fleet();
    let made = fleet.create_stored("a", "box");
    pushed(&fleet, &made, "old");
    let (newest, _) = pushed(&fleet, &made, "new");
    fleet.node_mut("a").server.lose_machine();
    fleet.wait_until_lost("a", "b");
    let told = fleet.node("b").plan_store(lies());
    let first = answered(&fleet.node("b").sandbox("box"), "cat /workspace/file");
    assert_eq!(first.json()["stdout"], "new\n", "nothing that was acknowledged is lost");
    assert_eq!(first.header("isolet-restored-from"), Some(&*newest), "{:?}", first.headers);
    assert_eq!(told.injected(), Lie::ALL.len() as u64, "each lie has been answered");
    drop(told);
    fleet.node_mut("a").server.launch();
    wait_until("the former copy is gone", LONG, || fleet.node("a").held().is_empty().then_some(()));
}

/// Promises: FL38.
#[test]
fn an_older_snapshot_is_restored_only_when_the_tenant_calls_for_it_and_the_newest_stays() {
    let mut fleet = fleet();
    hurries(&mut fleet, "b");
    let made = fleet.create_stored("a", "box");
    let (older, _) = pushed(&fleet, &made, "old");
    let (newest, objects) = pushed(&fleet, &made, "new");
    fleet.node_mut("a").server.lose_machine();
    fleet.wait_until_lost("a", "b");
    // Only the manifest of the newest is missing, so the older one could be read.
    let gone = fleet.node("b").plan_store(move |method, path, _| {
        let is_meant = method == "GET" && path.contains("/snapshots/") && is_of(&objects, path);
        if is_meant { Fault::NotFound } else { Fault::None }
    });
    let through = fleet.node("b").sandbox("box");
    let get = |sandbox: &Sandbox| sandbox.http.get(&sandbox.path(""));
    for _ in 0..2 {
        let refused = settled(&through, get).expect(503);
        assert_eq!(refused.error(), "not_restored");
        assert!(
            refused.text().contains(&newest) && refused.text().contains(&older),
            "{}",
            refused.text()
        );
    }
    let unknown =
        settled(&through, |sandbox| sandbox.post("/restore", &json!({"snapshot": "snap_x"})));
    assert_eq!(unknown.expect(503).error(), "not_restored", "it is none of its snapshots");
    let called = settled(&through, |sandbox| sandbox.post("/restore", &json!({"snapshot": older})));
    let called = called.expect(200);
    assert_eq!(called.header("isolet-restored-from"), Some(&*older), "{:?}", called.headers);
    let from = &called.json()["restored_from"];
    assert_eq!((&from["snapshot"], &from["skipped"]), (&json!(older), &json!([newest])), "{from}");
    assert_eq!(through.says("cat /workspace/file"), "old\n");
    let counted = fleet.node("b").http().get("/metrics").expect(200).text();
    assert!(counted.contains("isolet_fleet_skipped_snapshots_total 1"), "{counted}");
    drop(gone);
    // Later pushes delete what nobody needs, and not what was skipped.
    for text in ["third", "fourth", "fifth"] {
        pushed(&fleet, &through, text);
    }
    let path = format!("/v1/store/snapshots/{newest}");
    through.http.get(&path).expect(200);
    // A client deletes the newest one, so the one before is restored.
    let (kept, _) = pushed(&fleet, &through, "kept");
    let (deleted, _) = pushed(&fleet, &through, "deleted");
    through.http.delete(&format!("/v1/store/snapshots/{deleted}")).expect(204);
    fleet.node_mut("b").server.lose_machine();
    let first = answered(&fleet.node("c").sandbox("box"), "cat /workspace/file");
    assert_eq!(first.json()["stdout"], "kept\n");
    assert_eq!(first.header("isolet-restored-from"), Some(&*kept), "{:?}", first.headers);
}

/// Promises: FL36, FL38.
#[test]
fn a_move_whose_target_cannot_read_the_store_ends_where_it_began() {
    let mut fleet = fleet();
    hurries(&mut fleet, "b");
    for class in ["store", "node"] {
        let made = match class {
            "store" => fleet.create_stored("a", class),
            _ => fleet.create_of_class_on("a", class, class),
        };
        made.says("echo kept >/workspace/file");
        // Its former node can read none of it either, and goes on with its copy.
        let told: Vec<StoreFault<'_>> = ["a", "b"]
            .map(|node| {
                let plan = |method: &str, path: &str, _| Lie::NoPack.about(method, path);
                fleet.node(node).plan_store(move |m, p, n| plan(m, p, n).unwrap_or(Fault::None))
            })
            .into();
        let moved = fleet.move_in_background("c", class, "b").join().expect("no panic");
        let moved = moved.expect("an answer").expect(503);
        assert_eq!(moved.error(), "not_moved", "{}", moved.text());
        assert!(moved.text().contains("back on its former node"), "{}", moved.text());
        let through = fleet.node("c").sandbox(class);
        assert_eq!(through.says("cat /workspace/file"), "kept\n");
        assert_eq!(fleet.owner(class).as_deref(), Some("a"));
        assert!(told[1].injected() > 0 && told[0].injected() == 0, "the target has read, only");
        drop(told);
        let moved = fleet.move_in_background("c", class, "b").join().expect("no panic");
        assert_eq!(moved.expect("an answer").expect(200).json()["node"], "b");
        assert_eq!(through.says("cat /workspace/file"), "kept\n");
    }
    let left = fleet.node("a").http().get("/v1/snapshots").expect(200).text();
    assert!(!left.contains("\"sandbox\":\"node\""), "no copy stays: {left}");
}
