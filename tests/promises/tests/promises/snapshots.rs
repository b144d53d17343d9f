//! Snapshots of sandboxes, sandboxes that start from them, and forks.

use isolet_kit::{
    Http, Options, SOON, Sandbox, Server, Value, json, one, wait_until, with_growing_limit,
};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Everything below the directory of snapshots, except the empty staging area and the layers.
fn left(server: &Server) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(server.data().join("snapshots")).expect("is there").flatten() {
        match entry.file_name().to_str() {
            Some("layers") => {}
            Some("staging") => {
                let staged = std::fs::read_dir(entry.path()).expect("is there");
                all.extend(staged.flatten().map(|entry| entry.path()));
            }
            _ => all.push(entry.path()),
        }
    }
    all
}

fn take(sandbox: &Sandbox, body: &Value) -> Value {
    sandbox.post("/snapshots", body).expect(201).json()
}

fn id(of: &Value) -> String {
    of["id"].as_str().expect("an id").to_owned()
}

fn start_from(server: &Server, snapshot: &str) -> Sandbox {
    server.sandbox_with(&json!({"snapshot": snapshot}))
}

fn remove(http: &Http, snapshot: &str) {
    http.delete(&format!("/v1/snapshots/{snapshot}")).expect(200);
}

/// Fills a sandbox: files of several owners in the workspace and elsewhere, and the state of a shell.
fn fill(sandbox: &Sandbox) {
    let filled = sandbox.command(
        "dev",
        "echo one >/workspace/a; ln /workspace/a /workspace/hard; ln -s a /workspace/soft; \
         echo own >/usr/local/own; rm -f /etc/hostname.none; echo etc >/etc/isolet-test; \
         echo user >/workspace/user; chown 1000:1000 /workspace/user; chmod 4755 /workspace/user; \
         mkdir -p /workspace/deep/er; cd /workspace/deep; export EXPORTED=1; PLAIN=two; \
         greet() { echo hello $1; }; alias ll='ls -l'; shopt -s extglob",
    );
    assert_eq!(filled["exit_code"], 0, "{filled}");
}

const LOOK: &str = "pwd; echo $EXPORTED $PLAIN; greet you; alias ll; shopt -q extglob && echo on; \
                    cat /workspace/a /workspace/soft /usr/local/own /etc/isolet-test; \
                    stat -c '%u:%g %a' /workspace/user; stat -c %h /workspace/a";
const SEEN: &str = "/workspace/deep\n1 two\nhello you\nalias ll='ls -l'\non\none\none\nown\netc\n\
                    1000:1000 4755\n2\n";

fn a_copy_has_files_and_shells(disk_mib: u64) {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({
        "disk_mib": disk_mib, "memory_mib": 300, "env": {"GIVEN": "yes"}, "metadata": {"a": 1}
    }));
    fill(&sandbox);
    let taken = take(&sandbox, &json!({"name": "filled", "metadata": {"why": "test"}}));
    assert_eq!(taken["name"], "filled");
    assert_eq!(taken["sandbox"], sandbox.info()["id"]);
    assert_eq!(taken["lost"], json!([]), "{taken}");
    assert!(taken["frozen_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{taken}");
    assert!(taken["size_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{taken}");
    // The original goes on, apart from the snapshot.
    let later = sandbox.command("dev", "echo two >/workspace/a; rm /usr/local/own; PLAIN=three");
    assert_eq!(later["exit_code"], 0);
    for name in [id(&taken), "filled".to_owned()] {
        let copy = start_from(&server, &name);
        let info = copy.info();
        assert_eq!(info["memory_mib"], 300);
        assert_eq!(info["disk_mib"], disk_mib);
        assert_eq!(info["metadata"], json!({"a": 1}));
        assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
        assert_eq!(copy.says("echo $GIVEN"), "yes\n");
        assert_eq!(copy.says("touch /workspace/user /workspace/deep/new && echo ok"), "ok\n");
        copy.delete();
    }
    assert_eq!(sandbox.says("cat /workspace/a"), "two\n", "a copy does not change the original");
    remove(&server.http(), "filled");
    wait_until("its files are gone", SOON, || left(&server).is_empty().then_some(()));
    sandbox.delete();
    server.healthy();
}

/// Promises: SN1.
#[test]
fn a_copy_has_files_and_shells_of_one_moment_with_a_disk() {
    a_copy_has_files_and_shells(128);
}

/// Promises: SN1.
#[test]
fn a_copy_has_files_and_shells_of_one_moment_without_a_disk() {
    a_copy_has_files_and_shells(0);
}

/// The time of a snapshot once was that of the end of its copy, so that files which were written before
/// that time were not in it, and a report of what a restore loses was too short.
///
/// Promises: SN1.
#[test]
fn a_snapshot_has_everything_that_was_written_before_its_time() {
    let (server, sandbox) = one();
    // The more files, the longer takes the work after the copy.
    sandbox.says("mkdir many && cd many && seq 5000 | xargs touch");
    sandbox.background("while :; do echo $EPOCHREALTIME >>/workspace/times; done");
    wait_until("it writes", SOON, || (sandbox.says("wc -l <times") != "0\n").then_some(()));
    let taken = take(&sandbox, &json!({}));
    let copy = start_from(&server, &id(&taken));
    let copied: usize = copy.says("wc -l <times").trim().parse().expect("a number");
    // The next line may have been composed before and written after it.
    let later = format!("sed -n {}p times | tr -d .,", copied + 2);
    let later: i64 = sandbox.says(&later).trim().parse().expect("microseconds");
    let created_at_ms = taken["created_at_ms"].as_i64().expect("a time");
    assert!(later / 1000 >= created_at_ms, "{later} {created_at_ms}");
}

/// Promises: SN1.
#[test]
fn a_sleeping_sandbox_is_copied_without_waking_it() {
    let (server, sandbox) = one();
    fill(&sandbox);
    wait_until("it sleeps", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let taken = take(&sandbox, &json!({}));
    assert_eq!(taken["frozen_ms"], 0.0);
    assert_eq!(sandbox.info()["state"], "sleeping");
    let copy = start_from(&server, &id(&taken));
    assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
    remove(&server.http(), &id(&taken));
}

/// Promises: SN2.
#[test]
fn what_a_copy_does_not_contain_is_listed() {
    let (server, sandbox) = one();
    sandbox.command("dev", "sleep 4711 & disown; X=1");
    let taken = take(&sandbox, &json!({}));
    assert_eq!(taken["lost"], json!(["processes"]), "{taken}");
    let copy = start_from(&server, &id(&taken));
    let first = copy.command("dev", "echo $X; pgrep -c sleep");
    assert_eq!(first["stdout"], "1\n0\n");
    assert_eq!(first["lost"], json!(["processes"]), "{first}");
    assert!(copy.command("dev", ":").get("lost").is_none(), "reported once");
    assert_eq!(server.processes("sleep").len(), 1, "the original goes on");
    remove(&server.http(), &id(&taken));
}

/// Promises: SN1, SN2.
#[test]
fn forks_are_created_together_and_run_apart() {
    let (server, sandbox) = one();
    fill(&sandbox);
    let forked = sandbox.post("/fork", &json!({"count": 5})).expect(201).json();
    let forks = forked["forks"].as_array().expect("a list");
    assert_eq!(forks.len(), 5);
    for (number, fork) in forks.iter().enumerate() {
        assert_eq!(fork["state"], "running");
        let fork = server.named(&id(fork));
        assert_eq!(fork.command("dev", LOOK)["stdout"], SEEN);
        fork.says(&format!("echo {number} >/workspace/own"));
    }
    for (number, fork) in forks.iter().enumerate() {
        let own = server.named(&id(fork)).says("cat /workspace/own");
        assert_eq!(own, format!("{number}\n"));
    }
    assert_eq!(sandbox.exec("cat /workspace/own")["exit_code"], 1);
    assert_eq!(server.http().get("/v1/snapshots").json(), json!({"snapshots": []}));
    wait_until("the files of the fork's snapshot are gone", SOON, || {
        left(&server).is_empty().then_some(())
    });
    for count in [0, 101] {
        let refused = sandbox.post("/fork", &json!({"count": count})).expect(400);
        assert_eq!(refused.error(), "bad_field");
    }
}

/// Promises: SN3.
#[test]
fn a_fork_that_exceeds_a_limit_leaves_nothing() {
    let server = Options::new().config("sandboxes_max = 4\n").start();
    let sandbox = server.sandbox();
    let refused = sandbox.post("/fork", &json!({"count": 6}));
    assert_eq!(refused.error(), "too_many_sandboxes", "{}", refused.text());
    assert_eq!(server.ids(&server.http()).len(), 1, "the original");
    wait_until("no files are left", SOON, || left(&server).is_empty().then_some(()));
}

/// Promises: SN3, SN4.
#[test]
fn snapshots_survive_a_killed_server_and_a_half_taken_one_does_not() {
    let (mut server, sandbox) = one();
    fill(&sandbox);
    let taken = take(&sandbox, &json!({"name": "kept"}));
    for point in ["snapshot.held", "snapshot.copied", "snapshot.completed"] {
        let path = sandbox.path("/snapshots");
        abort_at(&mut server, point, "POST", &path, "{}");
        let listed = server.http().get("/v1/snapshots").json();
        assert_eq!(listed["snapshots"].as_array().map(Vec::len), Some(1), "{point}: {listed}");
        assert_eq!(left(&server).len(), 1, "{point}");
        assert_eq!(sandbox.command("dev", "echo $PLAIN")["stdout"], "two\n", "{point}");
    }
    let copy = start_from(&server, &id(&taken));
    assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
    for point in ["restore.begun", "restore.copied", "create.recorded"] {
        let body = json!({"id": "half", "snapshot": "kept"}).to_string();
        abort_at(&mut server, point, "POST", "/v1/sandboxes", &body);
        wait_until("the half restored sandbox is gone", SOON, || {
            (server.http().get("/v1/sandboxes/half").status == 404).then_some(())
        });
    }
    abort_at(&mut server, "snapshot.discarded", "DELETE", "/v1/snapshots/kept", "");
    assert_eq!(server.http().get("/v1/snapshots").json(), json!({"snapshots": []}));
    assert!(left(&server).is_empty());
}

/// Restarts the server such that it aborts at a point of this request, and starts it once more.
fn abort_at(server: &mut Server, point: &str, method: &str, path: &str, body: &str) {
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", &format!("{point}=abort"));
    server.wait_until_ready();
    let body = Some(body.as_bytes()).filter(|body| !body.is_empty());
    let _ = server.http().try_send(method, path, body);
    assert!(!server.wait().success(), "{point}");
    server.launch();
}

/// Promises: SN4.
#[test]
fn names_lifetimes_and_keys_of_snapshots() {
    let (server, sandbox) = one();
    let http = server.http();
    let once = http.with("idempotency-key", "s1");
    let path = sandbox.path("/snapshots");
    let first = once.post(&path, &json!({"name": "a"})).expect(201);
    let again = once.post(&path, &json!({"name": "a"})).expect(201);
    assert_eq!(first.json(), again.json());
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let taken = sandbox.post("/snapshots", &json!({"name": "a"})).expect(409);
    assert_eq!(taken.error(), "snapshot_exists");
    let racing: Vec<u16> = std::thread::scope(|scope| {
        let ask = || sandbox.post("/snapshots", &json!({"name": "raced"})).status;
        let all: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        all.into_iter().map(|one| one.join().expect("it is answered")).collect()
    });
    assert_eq!(racing.iter().filter(|status| **status == 201).count(), 1, "{racing:?}");
    remove(&http, "raced");
    let bad = sandbox.post("/snapshots", &json!({"name": "../a"})).expect(400);
    assert_eq!(bad.error(), "bad_field");
    assert_eq!(sandbox.post("/snapshots", &json!({"nme": "a"})).expect(400).error(), "bad_request");
    let short = take(&sandbox, &json!({"ttl_s": 1}));
    wait_until("its lifetime has passed", SOON, || {
        (http.get(&format!("/v1/snapshots/{}", id(&short))).status == 404).then_some(())
    });
    let unknown = http.post("/v1/sandboxes", &json!({"snapshot": "b"})).expect(404);
    assert_eq!(unknown.error(), "no_snapshot");
    for (field, value) in [("image", json!("host")), ("disk_mib", json!(777))] {
        let refused = http.post("/v1/sandboxes", &json!({"snapshot": "a", field: value}));
        assert_eq!((refused.status, refused.error().as_str()), (400, "bad_field"), "{field}");
    }
    let changed = json!({"snapshot": "a", "memory_mib": 256, "env": {"MORE": "1"}, "ttl_s": 600});
    let changed = server.sandbox_with(&changed);
    assert_eq!(changed.info()["memory_mib"], 256);
    assert_eq!(changed.says("echo $MORE"), "1\n");
    assert_eq!(
        http.post("/v1/sandboxes/none/snapshots", &json!({})).expect(404).error(),
        "no_sandbox"
    );
    let described = server.sandbox_with(&json!({"metadata": {"of": "it"}}));
    take(&described, &json!({"name": "described"}));
    for (metadata, expected) in [(None, json!({"of": "it"})), (Some(json!({})), json!({}))] {
        let mut spec = json!({"snapshot": "described"});
        metadata.into_iter().for_each(|metadata| spec["metadata"] = metadata);
        assert_eq!(server.sandbox_with(&spec).info()["metadata"], expected, "{spec}");
    }
    remove(&http, "described");
    remove(&http, "a");
    assert_eq!(http.delete("/v1/snapshots/a").expect(404).error(), "no_snapshot");
}

/// Promises: SN5.
#[test]
fn another_tenant_has_no_part_in_a_snapshot() {
    let (mut server, sandbox) = one();
    let other = server.add_key(&["--tenant", "other"]);
    let other = server.client(Some(&other));
    let reader = server.add_key(&["--read-only"]);
    let reader = server.client(Some(&reader));
    let taken = id(&take(&sandbox, &json!({"name": "mine"})));
    for name in [taken.as_str(), "mine"] {
        let path = format!("/v1/snapshots/{name}");
        assert_eq!(other.get(&path).expect(404).error(), "no_snapshot");
        assert_eq!(other.delete(&path).expect(404).error(), "no_snapshot");
        let create = other.post("/v1/sandboxes", &json!({"snapshot": name})).expect(404);
        assert_eq!(create.error(), "no_snapshot");
        reader.get(&path).expect(200);
        assert_eq!(reader.delete(&path).expect(403).error(), "read_only");
    }
    assert_eq!(other.get("/v1/snapshots").json(), json!({"snapshots": []}));
    assert_eq!(other.post(&sandbox.path("/fork"), &json!({})).expect(404).error(), "no_sandbox");
    // The same name is free for another tenant.
    let own = other.post("/v1/sandboxes", &json!({"id": "own"})).expect(201).json();
    let path = format!("/v1/sandboxes/{}/snapshots", id(&own));
    other.post(&path, &json!({"name": "mine"})).expect(201);
    remove(&other, "mine");
    remove(&server.http(), "mine");
}

/// Promises: SN5.
#[test]
fn a_scoped_session_sees_in_a_copy_what_it_saw_before() {
    let (mut server, sandbox) = one();
    sandbox.says("mkdir -p /workspace/mine /workspace/hidden; echo secret >/workspace/hidden/s");
    let scope = json!({"id": "part", "file_access": {"write": ["mine"]}});
    let made = sandbox.post("/sessions", &scope);
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(sandbox.command("part", "echo x >/workspace/mine/x; X=5")["exit_code"], 0);
    let taken = take(&sandbox, &json!({}));
    let copy = start_from(&server, &id(&taken));
    let seen = copy.command("part", "cat /workspace/mine/x; echo $X; cat /workspace/hidden/s");
    assert_eq!(seen["stdout"], "x\n5\n", "{seen}");
    assert_ne!(seen["exit_code"], 0);
    // The scope is recorded with the copy.
    let forked = sandbox.post("/fork", &json!({"count": 1})).expect(201).json();
    server.restart();
    for copy in [copy, server.named(&id(&forked["forks"][0]))] {
        let listed = copy.http.get(&copy.path("/sessions")).expect(200).json();
        let listed = listed.as_array().expect("a list").iter();
        let part = listed.clone().find(|one| one["id"] == "part");
        let part = part.unwrap_or_else(|| panic!("{listed:?}"));
        assert_eq!(part["file_access"]["write"], json!(["mine"]), "{part}");
        let seen = copy.command("part", "cat /workspace/mine/x; echo $X; cat /workspace/hidden/s");
        assert_eq!(seen["stdout"], "x\n5\n", "{seen}");
        assert_ne!(seen["exit_code"], 0);
    }
    remove(&server.http(), &id(&taken));
}

/// Promises: SN3, SN4.
#[test]
fn a_snapshot_is_not_deleted_while_sandboxes_are_created_from_it() {
    with_growing_limit(1000, a_delete_is_refused_within);
}

/// Deletes a snapshot while a create from it waits for `delay_ms`; `None` if the create was
/// through before.
fn a_delete_is_refused_within(delay_ms: u64) -> Option<()> {
    let (mut server, sandbox) = one();
    fill(&sandbox);
    take(&sandbox, &json!({"name": "used"}));
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", &format!("restore.begun=delay({delay_ms})"));
    server.wait_until_ready();
    let begun = Instant::now();
    let in_time = std::thread::scope(|scope| {
        let creating = scope.spawn(|| start_from(&server, "used"));
        wait_until("it is being created", SOON, || {
            server.log().contains("failpoint: delayed").then_some(())
        });
        let refused = server.http().delete("/v1/snapshots/used");
        if refused.status == 200 && begun.elapsed() >= Duration::from_millis(delay_ms) {
            return false;
        }
        assert_eq!(refused.expect(409).error(), "snapshot_in_use");
        let copy = creating.join().expect("it is created");
        assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
        server.http().delete("/v1/snapshots/used").expect(200);
        assert_eq!(copy.command("dev", LOOK)["stdout"], SEEN);
        true
    });
    wait_until("its files are gone", SOON, || left(&server).is_empty().then_some(()));
    in_time.then_some(())
}

/// The launcher has one thread, which must not wait for a process that is frozen from its start.
/// Promises: SN1.
#[test]
fn a_scope_that_starts_in_a_frozen_sandbox_delays_no_other() {
    with_growing_limit(3000, another_is_created_within);
}

/// Creates a sandbox while another one is frozen for `delay_ms`, in which a scope starts; `None` if
/// the freeze was over before.
fn another_is_created_within(delay_ms: u64) -> Option<()> {
    let (mut server, sandbox) = one();
    sandbox.says("mkdir /workspace/mine");
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", &format!("snapshot.held=delay({delay_ms})"));
    server.wait_until_ready();
    let part = json!({"id": "part", "file_access": {"write": ["mine"]}});
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| take(&sandbox, &json!({})));
        wait_until("it is frozen", SOON, || server.log().contains("snapshot.held").then_some(()));
        let scoped = scope.spawn(|| sandbox.post("/sessions", &part).status);
        // Enough for the request to arrive; the sandbox stays frozen for much longer.
        std::thread::sleep(Duration::from_millis(500));
        // Of another size than those of the warm pool, so that the launcher creates it.
        let other = server.sandbox_with(&json!({"disk_mib": 40}));
        let in_time = !copying.is_finished();
        let late = begun.elapsed() >= Duration::from_millis(delay_ms);
        assert!(in_time || late, "another create waited for the frozen sandbox");
        assert_eq!(other.says("echo up"), "up\n");
        let taken = copying.join().expect("it is answered");
        assert_eq!(scoped.join().expect("it is answered"), 201);
        remove(&server.http(), &id(&taken));
        in_time.then_some(())
    })
}
