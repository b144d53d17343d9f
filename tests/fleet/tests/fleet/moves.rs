//! Sandboxes leave their nodes: evicted to the object store, moved to another node, and drained.

use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, Reply, SOON, Sandbox, Value, json, wait_until};

fn fleet(evict_after_s: u64) -> LocalFleet {
    let config = "snapshot_every_s_min = 1\n".to_owned();
    LocalFleet::with(&FleetOptions {
        has_store: true,
        evict_after_s,
        config,
        // No test here waits for its end, and a busy machine takes long for a restart.
        lease_ttl_s: 30,
        ..FleetOptions::default()
    })
}

/// How many nodes hold files of sandboxes.
fn held(fleet: &LocalFleet) -> usize {
    fleet.nodes.iter().map(|node| node.held().len()).sum()
}

/// Puts a sandbox to sleep, which its scheduled snapshot may delay.
pub(crate) fn sleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// A reply that is not refused because the sandbox is on its way.
fn settled(mut ask: impl FnMut() -> Reply) -> Reply {
    wait_until("it is answered", LONG, || {
        let reply = ask();
        if reply.status == 503 {
            let code = reply.error();
            assert!(["owner_moved", "restoring"].contains(&&*code), "{}", reply.text());
            return None;
        }
        Some(reply)
    })
}

pub(crate) fn drained(fleet: &LocalFleet, node: &str, through: &str) -> Value {
    let http = fleet.node(through).http();
    let path = format!("/v1/nodes/{node}/drain");
    http.post(&path, &json!({})).expect(200);
    wait_until("the drain ends", LONG, || {
        let progress = http.get(&path).expect(200).json();
        (progress["running"] == false).then_some(progress)
    })
}

/// Promises: FL35.
#[test]
fn a_sleeping_sandbox_is_evicted_and_restored_by_the_node_that_is_asked() {
    let fleet = fleet(0);
    let made = fleet.create_stored("a", "box");
    assert_eq!(made.command("dev", "echo kept >/workspace/file; cd /tmp; x=7")["exit_code"], 0);
    sleep(&made);
    // A change of its settings after its snapshot must not be lost.
    made.http.patch(&made.path(""), &json!({"metadata": {"late": 1}})).expect(200);
    let progress = drained(&fleet, "a", "b");
    assert_eq!((&progress["stored"], &progress["moved"]), (&json!(1), &json!(0)), "{progress}");
    assert_eq!(held(&fleet), 0, "no node has files of it");
    // It is shown and listed by every node, and nothing is restored.
    for node in crate::NODES {
        let http = fleet.node(node).http();
        let one = http.get("/v1/sandboxes/box").expect(200).json();
        assert_eq!((&one["state"], &one["node"]), (&json!("sleeping"), &Value::Null), "{one}");
        assert_eq!(one["metadata"], json!({"late": 1}));
        let list = http.get("/v1/sandboxes").expect(200).json();
        let ids: Vec<_> = list.as_array().expect("a list").iter().map(|one| &one["id"]).collect();
        assert_eq!(ids, [&json!("box")], "through {node}");
        for (path, id) in [("/v2/sandboxes", "sandboxID"), ("/v1/runs", "id")] {
            let key = http.with("x-api-key", isolet_fleet_tests::KEY);
            let list = key.get(path).expect(200).json();
            let ids: Vec<_> = list.as_array().expect("a list").iter().map(|one| &one[id]).collect();
            assert_eq!(ids, [&json!("box")], "{path} through {node}");
        }
    }
    assert_eq!(held(&fleet), 0);
    let taken = fleet.node("c").http().post("/v1/sandboxes", &json!({"id": "box"}));
    assert_eq!(taken.expect(409).error(), "sandbox_exists");
    let through = fleet.node("c").sandbox("box");
    let changed = settled(|| through.http.patch(&through.path(""), &json!({"ttl_s": 4000})));
    assert_eq!(changed.expect(200).json()["state"], "sleeping", "a change does not wake it");
    let first = settled(|| {
        let body = json!({"command": "cat /workspace/file"});
        through.http.post(&through.path("/exec"), &body)
    });
    assert_eq!(first.expect(200).json()["stdout"], "kept\n");
    assert_eq!(through.command("dev", "echo $PWD $x")["stdout"], "/tmp 7\n");
    let info = through.info();
    assert_eq!(info["metadata"], json!({"late": 1}));
    assert_eq!(info["restored_from"]["lost"], Value::Null, "nothing is lost: {info}");
    // One that is deleted while only the store has it.
    fleet.node("b").http().post("/v1/nodes/a/uncordon", &json!({})).expect(200);
    sleep(&through);
    let owner = fleet.owner("box").expect("an owner");
    drained(&fleet, &owner, "a");
    let deleted = fleet.node("a").http().delete("/v1/sandboxes/box").expect(200).json();
    assert_eq!(deleted["state"], "destroyed");
    assert_eq!(fleet.owner("box"), None);
    wait_until("no snapshot is left in the store", LONG, || {
        let list = fleet.node("b").http().get("/v1/store/snapshots").expect(200).json();
        list["snapshots"].as_array().expect("a list").is_empty().then_some(())
    });
}

/// The value of a credential.
const SECRET: &str = "canary-of-a-credential";

/// Promises: FL36.
#[test]
fn sandboxes_of_both_classes_are_moved_with_all_that_belongs_to_them() {
    let fleet = fleet(0);
    for (id, class) in [("kept", "store"), ("plain", "node")] {
        let made = fleet.create_of_class_on("a", id, class);
        made.http
            .patch(&made.path(""), &json!({"metadata": {"a": 1}, "env": {"NAME": "v"}}))
            .expect(200);
        assert_eq!(made.command("dev", "echo kept >/workspace/file; x=7; cd /tmp")["exit_code"], 0);
        let secret = json!([{"host": "api.example", "header": "authorization", "value": SECRET}]);
        made.http.patch(&made.path("/network"), &json!({"credentials_add": secret})).expect(200);
        made.listen(8000);
        let link = made.post("/links", &json!({"port": 8000})).expect(201).json();
        let chosen = json!({"port": 8000, "token": "chosen-and-moved"});
        let chosen = made.post("/links", &chosen).expect(201).json();
        let before = made.info();
        let through = fleet.node("c").sandbox(id);
        let moved = wait_until("it is moved", LONG, || {
            let reply = through.http.post(&through.path("/move"), &json!({"node": "b"}));
            (reply.status == 200).then(|| reply.json())
        });
        assert_eq!((&moved["node"], &moved["class"]), (&json!("b"), &json!(class)), "{moved}");
        assert_eq!(fleet.owner(id).as_deref(), Some("b"));
        wait_until("one copy is left", SOON, || fleet.node("a").held().is_empty().then_some(()));
        let info = through.info();
        for field in ["id", "created_at_ms", "metadata", "class", "env_names", "ttl_s"] {
            assert_eq!(info[field], before[field], "{field}");
        }
        let lost = info["restored_from"]["lost"]["items"].to_string();
        assert!(lost.contains("processes") && !lost.contains("credentials"), "{info}");
        let network = through.http.get(&through.path("/network")).expect(200).json();
        assert_eq!(network["credentials"][0]["host"], "api.example", "{network}");
        // Its value went from node to node only.
        let values = fleet.etcd().etcdctl(&["get", "--prefix", "isolet/"]);
        assert!(values.contains(id) && !values.contains(SECRET), "etcd has the value");
        assert_eq!(through.says("cat /workspace/file; echo $NAME"), "kept\nv\n");
        assert_eq!(through.command("dev", "echo $PWD $x")["stdout"], "/tmp 7\n");
        let links = through.http.get(&through.path("/links")).expect(200).text();
        assert!(links.contains("8000"), "{links}");
        through.listen(8000);
        for link in [&link, &chosen] {
            let token = link["token"].as_str().expect("a token");
            fleet.node("c").server.client(None).get(&format!("/v1/links/{token}/")).expect(200);
        }
        // A repetition changes nothing.
        let again = through.http.post(&through.path("/move"), &json!({"node": "b"})).expect(200);
        assert_eq!(again.json()["node"], "b");
    }
    let list = fleet.node("c").http().get("/v1/store/snapshots").expect(200).text();
    assert!(!list.contains("plain"), "of the class node, no snapshot is left: {list}");
    let through = fleet.node("c").sandbox("plain");
    for (body, status, code) in [
        (json!({}), 400, "bad_field"),
        (json!({"node": "b", "region": "default"}), 400, "bad_field"),
        (json!({"node": "B/"}), 400, "bad_field"),
        (json!({"node": "nowhere"}), 404, "no_node"),
        (json!({"region": "nowhere"}), 409, "no_target"),
    ] {
        let refused = through.http.post(&through.path("/move"), &body).expect(status);
        assert_eq!(refused.error(), code, "{body}");
    }
    fleet.node("c").http().post("/v1/nodes/a/cordon", &json!({})).expect(200);
    wait_until("the node is cordoned", SOON, || {
        let refused = through.http.post(&through.path("/move"), &json!({"node": "a"}));
        (refused.status == 409).then(|| assert_eq!(refused.error(), "no_target"))
    });
    let ephemeral = json!({"id": "gone", "persistent": false, "memory_mib": 64});
    fleet.node("c").http().post("/v1/sandboxes", &ephemeral).expect(201);
    let gone = fleet.node("c").sandbox("gone");
    let refused = gone.http.post(&gone.path("/move"), &json!({"node": "b"})).expect(422);
    assert_eq!(refused.error(), "not_movable");
}

/// Promises: FL36.
#[test]
fn a_move_during_which_a_server_dies_leaves_one_whole_sandbox() {
    let mut fleet = fleet(0);
    for (index, (victim, point)) in [
        ("a", "depart.begun"),
        ("a", "depart.pushed"),
        ("a", "depart.recorded"),
        ("a", "depart.removed"),
        ("b", "restore_stored.begun"),
    ]
    .into_iter()
    .enumerate()
    {
        for class in ["store", "node"] {
            eprintln!("{point} on {victim}, {class}");
            let id = format!("{class}-{index}");
            let made = match class {
                "store" => fleet.create_stored("a", &id),
                _ => fleet.create_of_class_on("a", &id, class),
            };
            made.says("echo kept >/workspace/file");
            let server = &mut fleet.node_mut(victim).server;
            server.kill();
            server.launch_with("ISOLET_FAILPOINTS", &format!("{point}=abort"));
            server.wait_until_ready();
            let through = fleet.node("c").sandbox(&id);
            let mover = fleet.move_in_background("c", &id, "b");
            let server = &mut fleet.node_mut(victim).server;
            wait_until("it is killed", LONG, || server.has_ended().then_some(()));
            server.launch();
            drop(mover.join().expect("no panic"));
            let kept = wait_until("it answers", LONG, || {
                let reply = through
                    .http
                    .post(&through.path("/exec"), &json!({"command": "cat /workspace/file"}));
                (reply.status != 503).then(|| reply.expect(200).json())
            });
            assert_eq!(kept["stdout"], "kept\n", "{kept}");
            wait_until("one copy is left", LONG, || (held(&fleet) == 1).then_some(()));
            let owner = fleet.owner(&id).expect("an owner");
            assert_eq!(fleet.node(&owner).held().len(), 1, "node {owner} has it");
            through.delete();
            wait_until("nothing is left", LONG, || (held(&fleet) == 0).then_some(()));
        }
    }
}

/// Promises: FL35.
#[test]
fn what_has_slept_for_long_is_evicted_and_what_runs_is_not() {
    let fleet = fleet(1);
    let runs = fleet.create_stored("a", "runs");
    let made = fleet.create_stored("a", "box");
    made.says("echo kept >/workspace/file");
    sleep(&made);
    wait_until("it is evicted", LONG, || (held(&fleet) == 1).then_some(()));
    assert_eq!(runs.says("echo runs"), "runs\n");
    let through = fleet.node("b").sandbox("box");
    wait_until("no node has it", LONG, || {
        let reply = through.http.get(&through.path(""));
        (reply.status == 200 && reply.json()["node"] == Value::Null).then_some(())
    });
    let read = settled(|| {
        let body = json!({"command": "cat /workspace/file"});
        through.http.post(&through.path("/exec"), &body)
    });
    assert_eq!(read.expect(200).json()["stdout"], "kept\n");
    assert_eq!(held(&fleet), 2);
}

/// A move continues a paused sandbox, because its shells are saved. That had begun its lifetime, which
/// destroyed it on its old node after the move had failed.
/// Promises: FL36.
#[test]
fn a_move_does_not_begin_the_lifetime_of_a_paused_sandbox() {
    let mut fleet = fleet(0);
    for id in ["goes", "stays"] {
        let spec = json!({"id": id, "memory_mib": 64, "class": "node", "ttl_s": 600});
        let made = fleet.create_with("a", &spec);
        made.says("echo kept >/workspace/file");
        let e2b = |what: &str, body: Value| {
            made.http.post(&format!("/sandboxes/{id}/{what}"), &body).expect(204);
        };
        e2b("pause", json!({}));
        e2b("timeout", json!({"timeout": 1}));
    }
    let server = &mut fleet.node_mut("a").server;
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "depart.begun=2*error");
    server.wait_until_ready();
    for (id, status, node, state) in [("goes", 200, "b", "sleeping"), ("stays", 500, "a", "paused")]
    {
        let moved = fleet.move_in_background("c", id, "b").join().expect("no panic");
        let moved = moved.expect("an answer");
        assert_eq!(moved.status, status, "{}", moved.text());
        assert_eq!(fleet.owner(id).as_deref(), Some(node));
        // It began later, and its lifetime is as long.
        let cordons = fleet.only_on(node);
        let witness = fleet.node(node).sandbox("witness");
        let spec = json!({"id": "witness", "memory_mib": 64, "ttl_s": 1});
        witness.http.post("/v1/sandboxes", &spec).expect(201);
        drop(cordons);
        wait_until("the time of another one is over", SOON, || {
            (witness.http.get(&witness.path("")).status == 404).then_some(())
        });
        let now = fleet.node("c").sandbox(id).info();
        assert_eq!((&now["state"], &now["expires_at_ms"]), (&json!(state), &Value::Null), "{now}");
    }
}

/// A store that did not answer kept a sandbox frozen for minutes while its last changes were pushed.
/// Promises: FL55.
#[test]
fn a_sandbox_does_not_stand_still_for_an_object_store_that_hangs() {
    let mut fleet = fleet(0);
    let made = fleet.create_of_class_on("a", "box", "node");
    made.says("echo kept >/workspace/file");
    let server = &mut fleet.node_mut("a").server;
    server.stop();
    // The first push, while it runs, ends; the second one, while it stands still, hangs.
    let points = "push.uploaded=2*delay(600000);depart.standing=delay(1000)";
    server.launch_with("ISOLET_FAILPOINTS", points);
    server.wait_until_ready();
    let moving = fleet.move_in_background("b", "box", "c");
    let refused = moving.join().expect("no panic").expect("an answer").expect(503);
    assert_eq!(refused.error(), "not_moved", "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert_eq!(made.says("cat /workspace/file"), "kept\n");
    assert_eq!(fleet.owner("box").as_deref(), Some("a"));
    // The push that hangs ends with its server.
    let server = &mut fleet.node_mut("a").server;
    server.kill();
    server.launch();
    let moved = wait_until("it is moved", LONG, || {
        let reply = made.http.post(&made.path("/move"), &json!({"node": "c"}));
        (reply.status == 200).then(|| reply.json())
    });
    assert_eq!(moved["node"], "c", "{moved}");
    assert_eq!(fleet.node("b").sandbox("box").says("cat /workspace/file"), "kept\n");
}
