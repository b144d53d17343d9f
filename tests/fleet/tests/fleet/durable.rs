//! Sandboxes of the class `store` survive the death of their node.

use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, Reply, SOON, Sandbox, Value, json, process, wait_until};
use rustix::process::Signal;

pub(crate) fn fleet() -> LocalFleet {
    let config = "snapshot_every_s_min = 1\n".to_owned();
    let options =
        FleetOptions { has_store: true, lease_ttl_s: 5, config, ..FleetOptions::default() };
    LocalFleet::with(&options)
}

/// Takes a snapshot, pushes it, and returns its id.
pub(crate) fn push(sandbox: &Sandbox) -> String {
    let taken = sandbox.post("/snapshots", &json!({})).expect(201).json();
    let id = taken["id"].as_str().expect("an id").to_owned();
    sandbox.http.post(&format!("/v1/snapshots/{id}/push"), &json!({})).expect(200);
    let own = Some(id.as_str());
    wait_until("the record names it", SOON, || {
        (sandbox.info()["last_pushed_snapshot"].as_str() == own).then_some(())
    });
    id
}

/// The first answer to a command that is not refused because the node is unreachable.
pub(crate) fn answered(sandbox: &Sandbox, command: &str) -> Reply {
    wait_until("another node answers", LONG, || {
        let body = json!({"command": command});
        let reply = sandbox.http.post(&sandbox.path("/exec"), &body);
        if reply.status == 503 {
            assert!(
                ["node_unreachable", "restoring"].contains(&&*reply.error()),
                "{}",
                reply.text()
            );
            return None;
        }
        Some(reply.expect(200))
    })
}

/// How many nodes hold files of sandboxes.
fn held(fleet: &LocalFleet) -> usize {
    fleet.nodes.iter().map(|node| node.held().len()).sum()
}

/// Promises: FL20, FL21.
#[test]
fn a_killed_node_is_replaced_by_the_next_one_that_is_asked() {
    let mut fleet = fleet();
    let made = fleet.create_stored("a", "box");
    let spec = json!({"metadata": {"kept": true}, "env": {"NAME": "value"}, "ttl_s": 4000});
    made.http.patch(&made.path(""), &spec).expect(200);
    assert_eq!(made.command("dev", "echo kept >/workspace/file; cd /tmp; x=7")["exit_code"], 0);
    let snapshot = push(&made);
    made.says("echo lost >/workspace/later; sleep 1000 >/dev/null & true");
    let before = made.info();
    fleet.node_mut("a").server.kill();
    let through = fleet.node("b").sandbox("box");
    let first = answered(&through, "cat /workspace/file; echo $NAME; ls /workspace");
    assert_eq!(first.json()["stdout"], "kept\nvalue\nfile\n");
    assert_eq!(first.header("isolet-restored-from"), Some(&*snapshot), "{:?}", first.headers);
    let lost = first.header("isolet-lost").expect("what was lost").to_owned();
    assert!(lost.starts_with("seconds=") && lost.contains("processes"), "{lost}");
    assert!(first.json()["lost"].to_string().contains("processes"), "{}", first.text());
    assert_eq!(fleet.owner("box").as_deref(), Some("b"));
    let info = through.info();
    for field in ["id", "created_at_ms", "metadata", "class", "ttl_s", "expires_at_ms", "env_names"]
    {
        assert_eq!(info[field], before[field], "{field}");
    }
    let from = &info["restored_from"];
    assert_eq!((from["snapshot"].as_str(), from["node"].as_str()), (Some(&*snapshot), Some("a")));
    assert!(from["lost"]["seconds"].as_u64().is_some_and(|s| s > 0), "{info}");
    assert!(
        info["placement_reason"].as_str().expect("a reason").contains("lost its lease"),
        "{info}"
    );
    // The session is there, in its directory.
    let session = through.command("dev", "echo $PWD $x");
    assert_eq!(session["stdout"], "/tmp 7\n");
    let again = through.http.get(&through.path("")).expect(200);
    assert!(again.header("isolet-restored-from").is_none(), "only the requests that waited");
    // A change on the new node, and the return of the old one, whose copy is superseded.
    through.says("echo new >/workspace/file");
    fleet.node_mut("a").server.launch();
    wait_until("the former copy is gone", LONG, || fleet.node("a").held().is_empty().then_some(()));
    let kept = fleet.node("a").server.data().join("superseded/default");
    assert_eq!(std::fs::read_dir(kept).expect("kept files").count(), 1);
    for node in crate::NODES {
        let said = fleet.node(node).sandbox("box").says("cat /workspace/file");
        assert_eq!(said, "new\n", "through {node}");
    }
    assert_eq!(fleet.owner("box").as_deref(), Some("b"));
    // It is pushed from its new node on, so it survives that one too.
    push(&through);
    fleet.node_mut("b").server.kill();
    let third = answered(&fleet.node("a").sandbox("box"), "cat /workspace/file");
    assert_eq!(third.json()["stdout"], "new\n");
    assert_eq!(fleet.owner("box").as_deref(), Some("a"));
    fleet.node_mut("b").server.launch();
    wait_until("one copy is left", LONG, || (held(&fleet) == 1).then_some(()));
}

/// An etcd without data does not know the snapshots, which may be all that is left of a sandbox.
#[test]
fn snapshots_stay_in_the_store_when_etcd_has_lost_its_data() {
    let fleet = fleet();
    let made = fleet.create_stored("a", "box");
    let scheduled = made.info()["last_pushed_snapshot"].as_str().expect("an id").to_owned();
    let own = push(&made);
    fleet.etcd().etcdctl(&["del", "--prefix", "isolet/"]);
    let server = &fleet.node("a").server;
    wait_until("its copy ends", LONG, || fleet.node("a").held().is_empty().then_some(()));
    let kept = server.data().join("superseded/default");
    assert_eq!(std::fs::read_dir(kept).expect("kept files").count(), 1);
    wait_until("the decision is in the log", SOON, || {
        server.log().contains("no record of its snapshots").then_some(())
    });
    for id in [&scheduled, &own] {
        made.http.get(&format!("/v1/store/snapshots/{id}")).expect(200);
    }
}

/// Promises: FL22.
#[test]
fn of_two_nodes_that_are_asked_at_once_one_takes_the_sandbox_over() {
    let mut fleet = fleet();
    for round in 0..crate::ROUNDS {
        let id = format!("box{round}");
        let made = fleet.create_stored("a", &id);
        made.says("echo kept >/workspace/file");
        push(&made);
        fleet.node_mut("a").server.kill();
        fleet.wait_until_lost("a", "b");
        fleet.wait_until_lost("a", "c");
        let asking: Vec<_> = ["b", "c", "b", "c"]
            .map(|node| {
                let sandbox = fleet.node(node).sandbox(&id);
                let pid = "cat /workspace/file; cat /proc/sys/kernel/random/boot_id; \
                           stat -c %i /workspace/file; echo x >>/workspace/count";
                let pid = json!({"command": pid});
                std::thread::spawn(move || sandbox.http.post(&sandbox.path("/exec"), &pid))
            })
            .into_iter()
            .map(|thread| thread.join().expect("no panic").expect(200))
            .collect();
        let first = asking[0].json();
        assert!(first["stdout"].as_str().expect("text").starts_with("kept\n"), "{first}");
        assert!(asking.iter().all(|reply| reply.json()["stdout"] == first["stdout"]), "one copy");
        let owner = fleet.owner(&id).expect("an owner");
        assert!(["b", "c"].contains(&&*owner), "{owner}");
        let said = fleet.node("b").sandbox(&id).says("wc -l </workspace/count");
        assert_eq!(said, "4\n", "all of them reached the same copy");
        let holders = ["b", "c"].map(|node| fleet.node(node).held().len());
        assert_eq!(holders.iter().sum::<usize>(), 1, "one node has files of it: {holders:?}");
        fleet.node_mut("a").server.launch();
        wait_until("the former copy is gone", LONG, || {
            fleet.node("a").held().is_empty().then_some(())
        });
        fleet.node("a").sandbox(&id).delete();
        wait_until("its files are gone", SOON, || (held(&fleet) == 0).then_some(()));
    }
}

/// Promises: FL23.
#[test]
fn without_a_snapshot_the_answer_says_so_and_a_dead_node_frees_the_id() {
    let mut fleet = fleet();
    // Nothing can be pushed.
    fleet.store.take();
    for (id, class) in [("box", "store"), ("plain", "node")] {
        fleet.create_of_class_on("a", id, class);
    }
    // The node follows the ownership of a new sandbox within a second.
    std::thread::sleep(std::time::Duration::from_secs(3));
    fleet.node_mut("a").server.kill();
    fleet.wait_until_lost("a", "b");
    let b = fleet.node("b").http();
    let refused = b.get("/v1/sandboxes/box").expect(503);
    assert_eq!(refused.error(), "node_unreachable");
    assert!(refused.text().contains("no snapshot"), "{}", refused.text());
    assert_eq!(b.get("/v1/sandboxes/plain").expect(503).error(), "node_unreachable");
    assert_eq!(b.delete("/v1/sandboxes/plain").status, 503, "its node may return");
    assert_eq!(fleet.owner("plain").as_deref(), Some("a"));
    b.post("/v1/nodes/a/declare-dead", &json!({})).expect(200);
    for id in ["box", "plain"] {
        let path = format!("/v1/sandboxes/{id}");
        wait_until("it is gone", SOON, || {
            let reply = b.get(&path);
            (reply.status == 410).then(|| assert_eq!(reply.error(), "node_dead"))
        });
        let exec = b.post(&format!("{path}/exec"), &json!({"command": "true"})).expect(410);
        assert_eq!(exec.error(), "node_dead");
        let deleted = b.delete(&path).expect(200).json();
        assert_eq!(deleted["state"], "destroyed");
        assert_eq!(fleet.owner(id), None);
        assert_eq!(b.get(&path).expect(404).error(), "no_sandbox");
    }
    b.post("/v1/sandboxes", &json!({"id": "plain", "memory_mib": 64})).expect(201);
    assert_eq!(fleet.node("c").sandbox("plain").says("echo new"), "new\n");
    let log = b.get("/v1/audit").expect(200).text();
    fleet.node_mut("a").server.launch();
    wait_until("its copies are ended", LONG, || fleet.node("a").held().is_empty().then_some(()));
    assert!(log.contains("sandbox.abandon"), "{log}");
}

/// Promises: FL20.
#[test]
fn snapshots_are_pushed_at_sleep_and_at_intervals_and_deleted_with_the_sandbox() {
    let mut fleet = fleet();
    let made = fleet.create_stored("a", "box");
    let pushed = || made.info()["last_pushed_snapshot"].as_str().map(str::to_owned);
    let newer = |than: Option<String>| {
        wait_until("a newer snapshot is pushed", LONG, || {
            pushed().filter(|now| Some(now) != than.as_ref())
        })
    };
    let first = pushed();
    made.says("echo asleep >/workspace/file");
    wait_until("it sleeps", SOON, || (made.post("/sleep", &json!({})).status == 200).then_some(()));
    let asleep = newer(first);
    assert_eq!(made.info()["state"], "sleeping", "a push does not wake it");
    let every = json!({"snapshot_every_s": 1});
    made.http.patch(&made.path(""), &every).expect(200);
    let asleep = newer(Some(asleep));
    // Nothing has run or changed since, so nothing more is pushed.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(pushed(), Some(asleep.clone()));
    made.says("echo awake >>/workspace/file");
    let third = newer(Some(asleep));
    let fourth = newer(Some(third));
    let stored = |fleet: &LocalFleet| -> Vec<Value> {
        let list = fleet.node("b").http().get("/v1/store/snapshots").expect(200).json();
        list["snapshots"].as_array().expect("a list").clone()
    };
    wait_until("older ones are deleted", LONG, || (stored(&fleet).len() <= 4).then_some(()));
    newer(Some(fourth));
    fleet.node_mut("a").server.kill();
    let second = fleet.node("c").sandbox("box");
    let reply = answered(&second, "cat /workspace/file");
    assert_eq!(reply.json()["stdout"], "asleep\nawake\n");
    second.delete();
    assert_eq!(fleet.owner("box"), None);
    assert_eq!(second.http.get(&second.path("")).expect(404).error(), "no_sandbox");
    fleet.node_mut("a").server.launch();
    wait_until("no files are left", LONG, || (held(&fleet) == 0).then_some(()));
    wait_until("no snapshot is left in the store", LONG, || {
        stored(&fleet).is_empty().then_some(())
    });
}

/// Promises: FL21.
#[test]
fn a_restore_that_fails_is_repeated_and_loses_nothing() {
    let mut fleet = fleet();
    let made = fleet.create_stored("a", "box");
    made.says("echo kept >/workspace/file");
    push(&made);
    fleet.node_mut("a").server.kill();
    fleet.wait_until_lost("a", "b");
    let cut = fleet.node("b").cut(
        "store",
        &[isolet_fleet_tests::addresses::STORE],
        isolet_fleet_tests::CutDirection::Both,
    );
    let through = fleet.node("b").sandbox("box");
    let body = json!({"command": "cat /workspace/file"});
    let refused = through.http.post(&through.path("/exec"), &body).expect(503);
    assert!(["not_restored", "restoring"].contains(&&*refused.error()), "{}", refused.text());
    assert_eq!(fleet.owner("box").as_deref(), Some("b"), "it was taken over");
    drop(cut);
    // The server may die after the takeover, too.
    fleet.node_mut("b").server.kill();
    fleet.node_mut("b").server.launch();
    let reply = wait_until("it is restored", LONG, || {
        let reply = through.http.post(&through.path("/exec"), &body);
        (reply.status == 200).then_some(reply)
    });
    assert_eq!(reply.json()["stdout"], "kept\n");
    assert_eq!(fleet.owner("box").as_deref(), Some("b"));
    fleet.node_mut("a").server.launch();
    wait_until("one copy is left", LONG, || (held(&fleet) == 1).then_some(()));
}

/// The id was held from the start of the server, and stayed so after its ownership had been given up:
/// every request was answered with 503 `owner_moved`.
/// Promises: FL20.
#[test]
fn an_id_is_free_after_a_deletion_that_the_last_server_did_not_finish() {
    let mut fleet = fleet();
    let made = fleet.create_stored("a", "box");
    let server = &mut fleet.node_mut("a").server;
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "delete.removed=abort");
    server.wait_until_ready();
    // On a busy machine the lease may have ended before the server was back.
    wait_until("it answers", LONG, || (made.http.get(&made.path("")).status == 200).then_some(()));
    assert!(made.http.try_send("DELETE", &made.path(""), None).is_err(), "the server ends");
    server.wait();
    server.launch();
    server.wait_until_ready();
    wait_until("the sandbox does not exist", SOON, || {
        let reply = made.http.get(&made.path(""));
        assert!(matches!(reply.status, 404 | 503), "{}", reply.text());
        (reply.status == 404).then_some(())
    });
    assert_eq!(fleet.owner("box"), None);
    drop(fleet.create_of_class_on("a", "box", "store"));
}

/// The snapshots that node `a` has of the tenant, and their directories.
fn snapshots_on_a(fleet: &LocalFleet) -> (usize, usize) {
    let list = fleet.node("a").http().get("/v1/snapshots").expect(200).json();
    let count = list["snapshots"].as_array().expect("a list").len();
    let folder = fleet.node("a").server.data().join("snapshots");
    let names = std::fs::read_dir(folder).expect("a directory").flatten();
    let own = names.filter(|one| one.file_name() != "staging" && one.file_name() != "layers");
    (count, own.count())
}

/// Creates and deletes sandboxes on node `a` that get their first snapshot in between, or do not wait for it.
fn live_briefly(fleet: &LocalFleet, count: usize) {
    let http = fleet.node("a").http();
    for number in 0..count {
        let id = format!("brief{number}");
        let spec = json!({"id": id, "memory_mib": 64, "class": "store"});
        http.post("/v1/sandboxes", &spec).expect(201);
        if number % 2 == 0 {
            wait_until("it has a snapshot", LONG, || (snapshots_on_a(fleet).0 > 0).then_some(()));
        }
        http.delete(&format!("/v1/sandboxes/{id}")).expect(200);
    }
    wait_until("no snapshot is left", LONG, || (snapshots_on_a(fleet) == (0, 0)).then_some(()));
}

/// Each sandbox left a snapshot on its node. After 1,000 of a tenant, further sandboxes were created and never
/// pushed.
/// Promises: FL53.
#[test]
fn sandboxes_that_live_briefly_leave_no_snapshots_on_their_node() {
    let fleet = fleet();
    let cordons = fleet.only_on("a");
    live_briefly(&fleet, 6);
    // One that leaves takes them along too.
    let made = fleet.create_stored("a", "moved");
    drop(cordons);
    wait_until("it is moved", LONG, || {
        let reply = made.http.post(&made.path("/move"), &json!({"node": "b"}));
        (reply.status == 200).then_some(())
    });
    wait_until("no snapshot is left", LONG, || (snapshots_on_a(&fleet) == (0, 0)).then_some(()));
}

/// Promises: FL53.
#[test]
#[ignore = "takes minutes: make fleet-soak"]
fn soak_fleet_1100_short_lives_leave_room_for_the_next_one() {
    let fleet = fleet();
    let cordons = fleet.only_on("a");
    live_briefly(&fleet, 1100);
    let last = fleet.create_of_class_on("a", "last", "store");
    wait_until("it is pushed", SOON, || (last.info()["durable"] == true).then_some(()));
    drop(cordons);
}

/// Requests that were on their way to an owner whose server stood still waited for as long as it stood,
/// also after another node had restored the sandbox.
/// Promises: FL9.
#[test]
fn requests_to_an_owner_that_stands_still_end_with_its_lease() {
    let fleet = fleet();
    let made = fleet.create_stored("a", "box");
    assert_eq!(made.command("dev", "echo kept >/workspace/file")["exit_code"], 0);
    push(&made);
    let through = fleet.node("b").sandbox("box");
    let asked = through.clone();
    let writes = std::thread::spawn(move || {
        asked.post("/exec", &json!({"command": "touch /workspace/begun; sleep 1000"}))
    });
    wait_until("the command runs", LONG, || {
        let listed = made.post("/exec", &json!({"command": "ls /workspace"})).expect(200).json();
        listed["stdout"].as_str().is_some_and(|all| all.contains("begun")).then_some(())
    });
    process::signal(fleet.node("a").server.pid(), Signal::STOP);
    let asked = through.clone();
    let reads = std::thread::spawn(move || asked.http.get(&asked.path("")));
    let written = writes.join().expect("no panic");
    assert_eq!(
        (written.status, &*written.error()),
        (503, "node_unreachable"),
        "{}",
        written.text()
    );
    assert!(written.text().contains("may have had an effect"), "{}", written.text());
    let read = reads.join().expect("no panic").expect(200).json();
    assert_eq!(read["node"], "b", "{read}");
    let first = answered(&through, "cat /workspace/file");
    assert_eq!(first.json()["stdout"], "kept\n");
    process::signal(fleet.node("a").server.pid(), Signal::CONT);
}
