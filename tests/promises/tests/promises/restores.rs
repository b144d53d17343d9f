//! Restoring snapshots in place of the files of a sandbox.

use isolet_kit::{Options, SOON, Sandbox, Server, Start, Value, json, one, wait_until};
use std::path::PathBuf;

/// Everything in the directory of restores in place.
fn left(server: &Server) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(server.data().join("restores")).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

fn take(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.post("/snapshots", &json!({"name": name})).expect(201).json()
}

fn restore(sandbox: &Sandbox, snapshot: &str) -> Value {
    sandbox.post("/restore", &json!({"snapshot": snapshot})).expect(200).json()
}

fn state(sandbox: &Sandbox) -> String {
    sandbox.info()["state"].as_str().expect("a text").to_owned()
}

const FILL: &str = "echo old >/workspace/f; echo old >/etc/isolet-test; mkdir -p /workspace/d; \
                    cd /workspace/d; X=old; greet() { echo hi $1; }";
const CHANGE: &str = "echo new >/workspace/f; echo more >/workspace/g; rm /etc/isolet-test; cd /; \
                      X=new; unset -f greet";
const LOOK: &str = "pwd; echo $X; greet you; cat /workspace/f /etc/isolet-test; ls /workspace/g";
const OLD: &str = "/workspace/d\nold\nhi you\nold\nold\n";

fn fill(sandbox: &Sandbox) {
    let filled = sandbox.command("dev", FILL);
    assert_eq!(filled["exit_code"], 0, "{filled}");
}

fn change(sandbox: &Sandbox) {
    let changed = sandbox.command("dev", CHANGE);
    assert_eq!(changed["exit_code"], 0, "{changed}");
}

fn names(sandbox: &Sandbox) -> Vec<String> {
    let sessions = sandbox.http.get(&sandbox.path("/sessions")).expect(200).json();
    let all = sessions.as_array().expect("a list").iter();
    all.map(|one| one["id"].as_str().expect("a text").to_owned()).collect()
}

fn it_keeps_its_identity(disk_mib: u64) {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({
        "disk_mib": disk_mib, "memory_mib": 300, "env": {"GIVEN": "old"}, "metadata": {"a": 1}
    }));
    let events = server.http().try_open("GET", &sandbox.path("/events"), None).expect("an answer");
    fill(&sandbox);
    sandbox.post("/sessions", &json!({"id": "early", "cwd": "/tmp"})).expect(201);
    let taken = take(&sandbox, "point");
    change(&sandbox);
    sandbox.http.delete(&sandbox.path("/sessions/early")).expect(204);
    sandbox.post("/sessions", &json!({"id": "late"})).expect(201);
    let patch = json!({"metadata": {"b": 2}, "memory_mib": 400, "env": {"GIVEN": "new"}});
    sandbox.http.patch(&sandbox.path(""), &patch).expect(200);
    let link = sandbox.post("/links", &json!({"port": 8000})).expect(201).json();
    sandbox.command("dev", "sleep 4713 & disown");
    let mut shell = sandbox.shell();
    shell.run("echo up").is("up\n", 0);
    let before = sandbox.info();

    let restored = restore(&sandbox, "point");
    assert_eq!(restored["state"], "running", "{restored}");
    assert_eq!(restored["lost"], json!(["shells", "processes"]), "{restored}");
    for field in ["id", "created_at_ms", "memory_mib", "metadata", "network", "disk_mib"] {
        assert_eq!(restored[field], before[field], "{field}");
    }
    let first = sandbox.command("dev", LOOK);
    assert_eq!(first["stdout"], OLD, "{first}");
    assert_eq!(first["lost"], restored["lost"], "{first}");
    assert!(sandbox.command("dev", ":").get("lost").is_none(), "reported once");
    assert_eq!(sandbox.says("echo $GIVEN"), "old\n");
    assert_eq!(names(&sandbox), ["default", "dev", "early"]);
    assert!(server.processes("sleep").is_empty(), "what ran has ended");
    assert!(shell.next(SOON).is_some(), "an attached client learns of the end");
    let links = sandbox.http.get(&sandbox.path("/links")).expect(200).json();
    assert!(links.to_string().contains("8000"), "{links} after {link}");
    sandbox.background("exec python3 -m http.server --bind 127.0.0.1 8000");
    sandbox.await_port(8000);
    assert!(left(&server).is_empty(), "{:?}", left(&server));

    // The snapshot is unchanged by what happens in the sandbox, and can be restored again.
    change(&sandbox);
    restore(&sandbox, taken["id"].as_str().expect("a text"));
    assert_eq!(sandbox.command("dev", LOOK)["stdout"], OLD);
    sandbox.http.delete("/v1/snapshots/point").expect(200);
    assert_eq!(sandbox.says("cat /workspace/f"), "old\n");
    let audit = server.http().get("/v1/audit").expect(200).text();
    assert!(audit.contains("\"event\":\"sandbox.restore\""), "{audit}");
    sandbox.delete();
    let mut seen = Vec::new();
    let mut events = events;
    while seen.last().is_none_or(|name| name != "destroyed") {
        seen.push(events.event().unwrap_or_else(|| panic!("it ended after {seen:?}")).name);
    }
    assert_eq!(seen.iter().filter(|name| *name == "restored").count(), 2, "{seen:?}");
    server.healthy();
}

/// Promises: SN6.
#[test]
fn a_sandbox_with_a_disk_goes_back_to_a_snapshot() {
    it_keeps_its_identity(128);
}

/// Promises: SN6.
#[test]
fn a_sandbox_without_a_disk_goes_back_to_a_snapshot() {
    it_keeps_its_identity(0);
}

/// Promises: SN6.
#[test]
fn a_paused_or_sleeping_sandbox_is_restored_and_asleep_afterwards() {
    let (server, sandbox) = one();
    fill(&sandbox);
    take(&sandbox, "point");
    for stop in ["/pause", "/sleep"] {
        change(&sandbox);
        wait_until("it stops", SOON, || {
            (sandbox.post(stop, &json!({})).status == 200).then_some(())
        });
        let restored = restore(&sandbox, "point");
        assert_eq!(restored["state"], "sleeping", "{stop}: {restored}");
        assert_eq!(state(&sandbox), "sleeping", "{stop}");
        assert_eq!(sandbox.command("dev", LOOK)["stdout"], OLD, "{stop}");
    }
    assert!(left(&server).is_empty());
    server.healthy();
}

/// Promises: SN6.
#[test]
fn an_ephemeral_sandbox_keeps_restored_files_until_it_sleeps() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"persistent": false}));
    fill(&sandbox);
    let taken = take(&sandbox, "point");
    assert_eq!(taken["lost"], json!(["shells"]), "its shells are not saved: {taken}");
    change(&sandbox);
    restore(&sandbox, "point");
    assert_eq!(sandbox.says("cat /workspace/f"), "old\n");
    sandbox.post("/sleep", &json!({})).expect(200);
    restore(&sandbox, "point");
    assert_eq!(sandbox.says("cat /workspace/f"), "old\n");
    sandbox.post("/sleep", &json!({})).expect(200);
    assert_eq!(sandbox.exec("cat /workspace/f")["exit_code"], 1);
    server.healthy();
}

/// Promises: SN6.
#[test]
fn the_snapshot_of_another_sandbox_is_restored_if_it_fits() {
    let (server, sandbox) = one();
    fill(&sandbox);
    let point = take(&sandbox, "point");
    let other = server.sandbox();
    restore(&other, "point");
    assert_eq!(other.command("dev", LOOK)["stdout"], OLD);
    let larger = server.sandbox_with(&json!({"disk_mib": 77}));
    larger.says("echo mine >/workspace/f");
    let refused = larger.post("/restore", &json!({"snapshot": "point"})).expect(409);
    assert_eq!(refused.error(), "snapshot_incompatible", "{}", refused.text());
    assert!(refused.text().contains(point["id"].as_str().expect("a text")), "{}", refused.text());
    assert_eq!(larger.says("cat /workspace/f"), "mine\n");
    let none = larger.post("/restore", &json!({"snapshot": "none"})).expect(404);
    assert_eq!(none.error(), "no_snapshot");
    let bad = larger.post("/restore", &json!({})).expect(400);
    assert_eq!(bad.error(), "bad_request", "{}", bad.text());
    let nowhere = server.http().post("/v1/sandboxes/none/restore", &json!({"snapshot": "point"}));
    assert_eq!(nowhere.expect(404).error(), "no_sandbox");
}

/// Promises: SN5, SN6.
#[test]
fn another_tenant_restores_nothing() {
    let (mut server, sandbox) = one();
    let key = server.add_key(&["--tenant", "other"]);
    let other = server.client(Some(&key));
    fill(&sandbox);
    take(&sandbox, "point");
    other.post("/v1/sandboxes", &json!({"id": "own"})).expect(201);
    let theirs = Sandbox { id: "own".into(), http: other.clone() };
    let refused = theirs.post("/restore", &json!({"snapshot": "point"})).expect(404);
    assert_eq!(refused.error(), "no_snapshot");
    let taken = take(&theirs, "theirs");
    let path = sandbox.path("/restore");
    let refused = other.post(&path, &json!({"snapshot": "theirs"})).expect(404);
    assert_eq!(refused.error(), "no_sandbox");
    let refused = sandbox.post("/restore", &json!({"snapshot": taken["id"]})).expect(404);
    assert_eq!(refused.error(), "no_snapshot");
    assert_eq!(sandbox.command("dev", LOOK)["stdout"], OLD);
}

/// Promises: SN4, SN6.
#[test]
fn one_key_restores_once() {
    let (mut server, sandbox) = one();
    fill(&sandbox);
    take(&sandbox, "point");
    change(&sandbox);
    let ask = |server: &Server| {
        let once = server.http().with("idempotency-key", "back");
        once.post(&sandbox.path("/restore"), &json!({"snapshot": "point"})).expect(200)
    };
    let first = ask(&server);
    assert_eq!(first.header("idempotency-replayed"), None);
    change(&sandbox);
    let again = ask(&server);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.json()["lost"], first.json()["lost"]);
    assert_eq!(sandbox.says("cat /workspace/f"), "new\n", "it was restored once");
    abort_at(&mut server, &sandbox, "in_place.recorded", Some("after a kill"));
    assert_eq!(sandbox.says("cat /workspace/f"), "old\n");
    change(&sandbox);
    let once = server.http().with("idempotency-key", "after a kill");
    let again = once.post(&sandbox.path("/restore"), &json!({"snapshot": "point"})).expect(200);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(sandbox.says("cat /workspace/f"), "new\n", "it was restored once");
}

/// Restarts the server such that it aborts at a point of a restore, and starts it once more.
fn abort_at(server: &mut Server, sandbox: &Sandbox, point: &str, key: Option<&str>) {
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", &format!("{point}=abort"));
    server.wait_until_ready();
    let http = key.map_or_else(|| server.http(), |key| server.http().with("idempotency-key", key));
    let body = json!({"snapshot": "point"}).to_string();
    let _ = http.try_send("POST", &sandbox.path("/restore"), Some(body.as_bytes()));
    assert!(!server.wait().success(), "{point}");
    server.launch();
}

/// The points of a restore at which a killed server leaves the old files, and the new ones.
const BEFORE: [&str; 2] = ["in_place.copied", "in_place.before_record"];
const AFTER: [&str; 4] =
    ["in_place.recorded", "in_place.ended", "in_place.exchanged", "in_place.discarded"];

fn a_killed_server_leaves_all_old_or_all_new_files(disk_mib: u64) {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"disk_mib": disk_mib}));
    let mut server = server;
    fill(&sandbox);
    take(&sandbox, "point");
    for point in BEFORE {
        change(&sandbox);
        abort_at(&mut server, &sandbox, point, None);
        let kept = sandbox.command("dev", "pwd; echo $X; cat /workspace/f /workspace/g");
        assert_eq!(kept["stdout"], "/\nnew\nnew\nmore\n", "{point}: {kept}");
        assert!(left(&server).is_empty(), "{point}: {:?}", left(&server));
    }
    for point in AFTER {
        change(&sandbox);
        abort_at(&mut server, &sandbox, point, None);
        assert_eq!(state(&sandbox), "sleeping", "{point}");
        let seen = sandbox.command("dev", LOOK);
        assert_eq!(seen["stdout"], OLD, "{point}: {seen}");
        assert_eq!(seen["lost"], json!(["shells"]), "{point}: {seen}");
        assert!(left(&server).is_empty(), "{point}: {:?}", left(&server));
    }
    sandbox.delete();
    server.healthy();
}

/// Promises: SN7.
#[test]
fn a_killed_server_leaves_all_old_or_all_new_files_with_a_disk() {
    a_killed_server_leaves_all_old_or_all_new_files(64);
}

/// Promises: SN7.
#[test]
fn a_killed_server_leaves_all_old_or_all_new_files_without_a_disk() {
    a_killed_server_leaves_all_old_or_all_new_files(0);
}

/// Promises: SN7.
#[test]
fn a_restore_that_fails_changes_nothing() {
    let (mut server, sandbox) = one();
    fill(&sandbox);
    take(&sandbox, "point");
    change(&sandbox);
    let points = BEFORE.map(|point| format!("{point}=error")).join(";");
    server.kill();
    // The first attempt fails at the first point, the second one at the second.
    server.launch_with("ISOLET_FAILPOINTS", &points.replacen("=error", "=2*error", 1));
    server.wait_until_ready();
    let mut shell = sandbox.shell();
    shell.run("Y=1").is("", 0);
    for _ in 0..2 {
        let failed = sandbox.post("/restore", &json!({"snapshot": "point"}));
        assert_eq!(failed.status, 500, "{}", failed.text());
        shell.run("echo $Y").is("1\n", 0);
        assert_eq!(sandbox.command("dev", "pwd; echo $X")["stdout"], "/\nnew\n");
        assert!(left(&server).is_empty(), "{:?}", left(&server));
    }
    let next = shell.start(Start::new("cat /workspace/f"));
    shell.finish(&next).is("new\n", 0);
}

/// Promises: SN7.
#[test]
fn a_restore_onto_a_full_disk_changes_nothing() {
    let server = Options::new().disk_mib(450).config("free_space_floor_mib = 100\n").start();
    let sandbox = server.sandbox_with(&json!({"disk_mib": 0}));
    sandbox.says("head -c 150000000 /dev/urandom >/workspace/large; echo old >/workspace/f");
    take(&sandbox, "point");
    sandbox.says("echo new >/workspace/f");
    let failed = sandbox.post("/restore", &json!({"snapshot": "point"}));
    assert_eq!(failed.error(), "no_space", "{} {}", failed.status, failed.text());
    assert_eq!(sandbox.says("cat /workspace/f"), "new\n");
    assert!(left(&server).is_empty(), "{:?}", left(&server));
}

/// Promises: SN5, SN6.
#[test]
fn a_scoped_session_sees_after_a_restore_what_it_saw_in_the_snapshot() {
    let (server, sandbox) = one();
    sandbox.says("mkdir -p /workspace/mine /workspace/hidden; echo secret >/workspace/hidden/s");
    let scope = json!({"id": "part", "file_access": {"write": ["mine"]}});
    sandbox.post("/sessions", &scope).expect(201);
    assert_eq!(sandbox.command("part", "echo old >/workspace/mine/x; X=5")["exit_code"], 0);
    take(&sandbox, "point");
    sandbox.command("part", "echo new >/workspace/mine/x; X=6");
    restore(&sandbox, "point");
    let seen = sandbox.command("part", "cat /workspace/mine/x; echo $X; cat /workspace/hidden/s");
    assert_eq!(seen["stdout"], "old\n5\n", "{seen}");
    assert_ne!(seen["exit_code"], 0);
    // A session of the snapshot that was replaced by one with more access has less again.
    sandbox.http.delete(&sandbox.path("/sessions/part")).expect(204);
    sandbox.post("/sessions", &json!({"id": "part"})).expect(201);
    assert_eq!(sandbox.command("part", "cat /workspace/hidden/s")["stdout"], "secret\n");
    restore(&sandbox, "point");
    let seen = sandbox.command("part", "cat /workspace/hidden/s");
    assert_ne!(seen["exit_code"], 0, "{seen}");
    server.healthy();
}
