//! Snapshots that the server takes without a request: at intervals, and before a sandbox is
//! destroyed.

use isolet_kit::{Http, LONG, Options, SOON, Sandbox, Server, Stream, Value, json, wait_until};
use std::time::Duration;

/// Long enough for the retries of the last snapshot before the end of a lifetime.
const RETRIES: Duration = Duration::from_secs(500);

fn server() -> Server {
    Options::new().config("snapshot_every_s_min = 1\n").start()
}

/// The snapshots of a sandbox, oldest first.
fn snapshots(http: &Http, sandbox: &str) -> Vec<Value> {
    let listed = http.get(&format!("/v1/snapshots?sandbox={sandbox}")).expect(200).json();
    let mut all = listed["snapshots"].as_array().expect("a list").clone();
    all.sort_by_key(|one| one["created_at_ms"].as_i64());
    all
}

fn ids(all: &[Value]) -> Vec<String> {
    all.iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
}

fn follow(sandbox: &Sandbox) -> Stream {
    sandbox.http.try_open("GET", &sandbox.path("/events"), None).expect("an answer")
}

/// The data of the next event with this name.
fn next(stream: &mut Stream, name: &str) -> Value {
    loop {
        let event = stream.event().unwrap_or_else(|| panic!("it ended before {name}"));
        if event.name == name {
            return event.data.parse().expect("JSON");
        }
    }
}

fn name(sandbox: &Sandbox) -> String {
    sandbox.info()["id"].as_str().expect("an id").to_owned()
}

/// Promises: SN8.
#[test]
fn snapshots_at_intervals_replace_the_oldest_and_leave_others_alone() {
    let mut server = server();
    let spec = json!({"snapshot_every_s": 1, "keep": 2, "sleep_after_s": 0});
    let sandbox = server.sandbox_with(&spec);
    let id = name(&sandbox);
    let own = sandbox.post("/snapshots", &json!({"name": "own"})).expect(201).json();
    assert_eq!(own["trigger"], "request");
    let mut seen = std::collections::BTreeSet::new();
    let mut rounds = |server: &Server, more: usize| {
        let wanted = seen.len() + more;
        wait_until("further snapshots are taken", SOON, || {
            let mut all = snapshots(&server.http(), &id);
            all.retain(|one| one["trigger"] == "schedule");
            assert!(all.len() <= 3, "two, and one that is new: {all:?}");
            seen.extend(ids(&all));
            (seen.len() >= wanted).then_some(())
        });
    };
    rounds(&server, 4);
    // After a restart the old ones are still those that are replaced.
    server.kill();
    server.launch();
    rounds(&server, 2);
    // Without an interval no further one is taken, and those that exist stay.
    let off = json!({"snapshot_every_s": null, "keep": 1});
    let changed = sandbox.http.patch(&sandbox.path(""), &off).expect(200).json();
    assert_eq!((&changed["snapshot_every_s"], &changed["keep"]), (&Value::Null, &json!(1)));
    wait_until("the one that was being taken is complete", SOON, || {
        let all = snapshots(&server.http(), &id);
        (all.len() <= 3).then_some(())
    });
    assert!(ids(&snapshots(&server.http(), &id)).contains(&ids(&[own])[0]), "not its own");
    let refused = sandbox.http.patch(&sandbox.path(""), &json!({"keep": 0})).expect(400);
    assert_eq!(refused.error(), "bad_field");
}

/// Promises: SN8.
#[test]
fn a_snapshot_at_an_interval_is_no_use_and_an_unchanged_sandbox_gets_none() {
    let server = server();
    let every = json!({"snapshot_every_s": 1, "sleep_after_s": 3, "keep": 100});
    let sleeper = server.sandbox_with(&every);
    sleeper.says("echo data >/workspace/data");
    let sleeper_id = name(&sleeper);
    let busy = json!({"snapshot_every_s": 1, "sleep_after_s": 0, "keep": 100});
    let busy = server.sandbox_with(&busy);
    let busy_id = name(&busy);
    let paused = server.sandbox_with(&json!({"snapshot_every_s": 1, "sleep_after_s": 0}));
    let paused_id = name(&paused);
    paused.post("/pause", &json!({})).expect(200);
    wait_until("it falls asleep between its snapshots", SOON, || {
        (sleeper.info()["state"] == "sleeping").then_some(())
    });
    let count = |id: &str| snapshots(&server.http(), id).len();
    let rounds = |more: usize| {
        let wanted = count(&busy_id) + more;
        wait_until("the other gets snapshots", SOON, || (count(&busy_id) >= wanted).then_some(()));
    };
    let of_both = || {
        let of = |id: &str| ids(&snapshots(&server.http(), id));
        (of(&sleeper_id), of(&paused_id))
    };
    rounds(3);
    // On a slow disk the snapshots of what had changed may not be complete yet.
    let (last, _) = wait_until("nothing changes or runs any more, and both stay so", LONG, || {
        let before = of_both();
        rounds(3);
        let first = !before.0.is_empty() && !before.1.is_empty();
        (first && of_both() == before).then_some(before)
    });
    assert_eq!(sleeper.info()["state"], "sleeping");
    let newest = last.last().expect("one");
    let copy = server.sandbox_with(&json!({"snapshot": newest, "snapshot_every_s": 0}));
    assert_eq!(copy.says("cat /workspace/data"), "data\n");
    // A sandbox from a snapshot has the settings of the original, and a fork has not.
    let inherited = server.sandbox_with(&json!({"snapshot": newest}));
    assert_eq!(inherited.info()["snapshot_every_s"], 1);
    let fork = busy.post("/fork", &json!({})).expect(201).json();
    assert_eq!(fork["forks"][0]["snapshot_every_s"], Value::Null);
}

/// Promises: SN8.
#[test]
fn a_snapshot_at_an_interval_that_fails_is_an_event_and_is_tried_again() {
    let mut server = server();
    let sandbox = server.sandbox_with(&json!({"sleep_after_s": 0}));
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "snapshot.copied=error");
    server.wait_until_ready();
    let mut events = follow(&sandbox);
    sandbox.http.patch(&sandbox.path(""), &json!({"snapshot_every_s": 1})).expect(200);
    for _ in 0..2 {
        let failed = next(&mut events, "snapshot_failed");
        assert_eq!(failed["trigger"], "schedule");
        let cause = failed["cause"].as_str().expect("words");
        assert!(cause.ends_with("; retried after the next interval"), "{cause}");
    }
    assert_eq!(snapshots(&server.http(), &name(&sandbox)), [Value::Null; 0]);
    assert_eq!(sandbox.says("echo on"), "on\n");
    server.kill();
    server.launch();
    let mut events = follow(&sandbox);
    assert_eq!(next(&mut events, "snapshot_taken")["trigger"], "schedule");
}

/// Promises: SN9.
#[test]
fn the_last_snapshot_has_everything_that_was_written() {
    let server = server();
    let http = server.http();
    for (disk_mib, state) in [(128, "running"), (0, "paused"), (64, "sleeping")] {
        let spec = json!({"disk_mib": disk_mib, "snapshot_on_destroy": true});
        let sandbox = server.sandbox_with(&spec);
        sandbox.command("dev", "echo data >/workspace/data; cd /usr; X=5");
        // It writes until it is killed.
        sandbox.exec(
            "(while :; do echo line >>/workspace/log; done) & disown; \
             until [ -s /workspace/log ]; do sleep 0.01; done",
        );
        match state {
            "paused" => _ = sandbox.post("/pause", &json!({})).expect(200),
            "sleeping" => wait_until("it sleeps", SOON, || {
                (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
            }),
            _ => {}
        }
        let mut events = follow(&sandbox);
        let deleted = http.delete(&sandbox.path("")).expect(200).json();
        assert_eq!(deleted["state"], "destroyed");
        let snapshot = deleted["snapshot"].as_str().expect("an id").to_owned();
        let taken = next(&mut events, "snapshot_taken");
        assert_eq!((&taken["snapshot"], &taken["trigger"]), (&json!(snapshot), &json!("destroy")));
        let one = http.get(&format!("/v1/snapshots/{snapshot}")).expect(200).json();
        assert_eq!(one["trigger"], "destroy");
        assert_eq!(http.get(&sandbox.path("")).status, 404);
        let copy =
            server.sandbox_with(&json!({"snapshot": snapshot, "snapshot_on_destroy": false}));
        assert_eq!(copy.says("cat /workspace/data"), "data\n");
        // The shells of a paused sandbox cannot save their state.
        if state != "paused" {
            assert_eq!(copy.command("dev", "pwd; echo $X")["stdout"], "/usr\n5\n");
        }
        assert_ne!(copy.says("grep -c line /workspace/log"), "0\n");
        let deleted = http.delete(&copy.path("")).expect(200).json();
        assert!(deleted.get("snapshot").is_none(), "{deleted}");
        http.delete(&format!("/v1/snapshots/{snapshot}")).expect(200);
    }
}

/// Promises: SN9.
#[test]
fn a_delete_whose_snapshot_fails_changes_nothing_unless_it_is_forced() {
    let mut server = server();
    let sandbox = server.sandbox_with(&json!({"snapshot_on_destroy": true}));
    sandbox.says("echo data >/workspace/data");
    for point in ["snapshot.held", "snapshot.copied", "snapshot.completed"] {
        server.kill();
        server.launch_with("ISOLET_FAILPOINTS", &format!("{point}=error"));
        server.wait_until_ready();
        let refused = server.http().delete(&sandbox.path(""));
        assert_eq!(refused.status, 500, "{point}: {}", refused.text());
        let message = refused.json()["message"].as_str().expect("words").to_owned();
        assert!(message.contains("is not deleted, because its snapshot failed"), "{message}");
        assert_eq!(sandbox.says("cat /workspace/data"), "data\n", "{point}");
        assert_eq!(snapshots(&server.http(), &name(&sandbox)), [Value::Null; 0], "{point}");
    }
    // A server that is killed in between leaves the sandbox and a complete snapshot.
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "destroy.snapshotted=abort");
    server.wait_until_ready();
    let _ = server.http().try_send("DELETE", &sandbox.path(""), None);
    assert!(!server.wait().success());
    server.launch();
    assert_eq!(sandbox.says("cat /workspace/data"), "data\n");
    assert_eq!(snapshots(&server.http(), &name(&sandbox)).len(), 1);
    let id = name(&sandbox);
    let path = format!("{}?force=true", sandbox.path(""));
    let deleted = server.http().delete(&path).expect(200).json();
    assert!(deleted.get("snapshot").is_none(), "{deleted}");
    assert_eq!(snapshots(&server.http(), &id).len(), 1);
}

/// Promises: SN9.
#[test]
fn the_end_of_the_lifetime_takes_a_snapshot() {
    let server = server();
    let spec = json!({"snapshot_on_destroy": true, "ttl_s": 1});
    let sandbox = server.sandbox_with(&spec);
    let id = sandbox.id.clone();
    let gone = || (server.http().get(&sandbox.path("")).status == 404).then_some(());
    wait_until("its time is over", SOON, gone);
    let all = snapshots(&server.http(), &id);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["trigger"], "destroy");
}

/// Promises: SN9.
#[test]
fn the_end_of_the_lifetime_waits_for_a_snapshot_that_fails() {
    let mut server = server();
    let sandbox = server.sandbox_with(&json!({"snapshot_on_destroy": true}));
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "snapshot.copied=error");
    server.wait_until_ready();
    let mut events = follow(&sandbox);
    sandbox.http.patch(&sandbox.path(""), &json!({"ttl_s": 1})).expect(200);
    let failed = next(&mut events, "snapshot_failed");
    assert!(failed["cause"].as_str().is_some_and(|cause| cause.ends_with("retried in 5 s")));
    assert_eq!(sandbox.says("echo on"), "on\n");
    // A longer lifetime ends the attempts.
    sandbox.http.patch(&sandbox.path(""), &json!({"ttl_s": 3600})).expect(200);
    assert_eq!(sandbox.info()["state"], "running");
    sandbox.http.delete(&format!("{}?force=1", sandbox.path(""))).expect(200);
}

/// Promises: SN9.
#[test]
#[ignore = "takes six minutes"]
fn the_end_of_the_lifetime_does_not_wait_forever() {
    let mut server = server();
    let sandbox = server.sandbox_with(&json!({"snapshot_on_destroy": true}));
    server.kill();
    server.launch_with("ISOLET_FAILPOINTS", "snapshot.copied=error");
    server.wait_until_ready();
    let mut events = follow(&sandbox);
    sandbox.http.patch(&sandbox.path(""), &json!({"ttl_s": 1})).expect(200);
    for next_step in ["in 5 s", "in 60 s", "in 300 s", "destroyed without a snapshot"] {
        let failed = next(&mut events, "snapshot_failed");
        let cause = failed["cause"].as_str().expect("words").to_owned();
        assert!(cause.ends_with(next_step), "{cause}");
    }
    let gone = || (server.http().get(&sandbox.path("")).status == 404).then_some(());
    wait_until("it is destroyed", RETRIES, gone);
}
