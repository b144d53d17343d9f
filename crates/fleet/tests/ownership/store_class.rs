//! Sandboxes of the class `store`, which another node may take over.

use crate::fixture::{Fixture, LEASE_ENDS};
use isolet_kit::{Server, json, process};
use rustix::process::Signal;

/// The server is killed, so only the guard can stop the sandbox. The next server cannot reach etcd at
/// first, and must not let it continue before it has compared the epoch.
/// Promises: FL2.
#[test]
fn a_sandbox_of_a_killed_server_stops_at_the_deadline_and_continues_after_a_comparison() {
    let mut fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    counting.counts();
    let epoch = fixture.owner("box").expect("it is owned").epoch;
    fixture.server.kill();
    counting.counts();
    counting.freezes();
    fixture.wire.cut();
    fixture.server.launch_with("ISOLET_LOG", "info");
    isolet_kit::wait_until("it tries to join", LEASE_ENDS, || {
        fixture.server.log().contains("cannot join the fleet yet").then_some(())
    });
    assert!(counting.is_frozen(), "a server without etcd let it continue");
    counting.stands();
    fixture.wire.mend();
    fixture.server.wait_until_ready();
    counting.counts();
    assert_eq!(counting.sandbox.says("echo works"), "works\n");
    assert_eq!(fixture.owner("box").map(|owner| owner.epoch), Some(epoch));
    assert!(fixture.superseded().is_empty());
}

/// The lease ends while the server runs: requests are refused, and answered again when the node has
/// its lease again.
/// Promises: FL2.
#[test]
fn a_sandbox_of_a_node_without_etcd_is_suspended_and_resumed() {
    let fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    fixture.wire.cut();
    counting.freezes();
    counting.is_refused();
    fixture.waits_for_phase(&counting, "suspended");
    fixture.wire.mend();
    counting.counts();
    fixture.waits_for_phase(&counting, "running");
    assert_eq!(counting.sandbox.says("echo works"), "works\n");
    counting.sandbox.delete();
    isolet_kit::wait_until("it is given up", isolet_kit::SOON, || {
        (fixture.owner("box").is_none() && fixture.phase(&counting).is_none()).then_some(())
    });
}

/// A lease guard that is stopped while etcd cannot be reached: the server knew that the lease was lost,
/// asked the guard only, and the sandbox ran on beside the copy of the node that took it over.
/// Promises: FL2, FL5.
#[test]
fn the_server_stops_a_sandbox_whose_guard_stands_still() {
    let fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    process::signal(guard_of(&fixture.server), Signal::STOP);
    fixture.wire.cut();
    counting.freezes();
    counting.is_refused();
    let owner = fixture.take_over("box");
    assert!(counting.is_frozen(), "it runs on two nodes");
    counting.stands();
    fixture.wire.mend();
    isolet_kit::wait_until("it is superseded", LEASE_ENDS, || {
        (!fixture.superseded().is_empty()).then_some(())
    });
    assert_eq!(fixture.owner("box").map(|now| now.epoch), Some(owner.epoch));
}

/// A guard that stands still while etcd is well is replaced, and the sandbox runs on.
/// Promises: FL5.
#[test]
fn a_guard_that_stands_still_is_replaced_while_the_sandbox_runs() {
    let fixture = Fixture::with_long_lease();
    let counting = fixture.counting("box", "store");
    let stopped = guard_of(&fixture.server);
    process::signal(stopped, Signal::STOP);
    isolet_kit::wait_until("another guard has taken its place", LEASE_ENDS, || {
        find_guard(&fixture.server).filter(|pid| *pid != stopped)
    });
    counting.counts();
    // The new one knows the sandbox.
    isolet_kit::wait_until("it runs under the new guard", LEASE_ENDS, || {
        fixture.server.log().contains("told another lease guard").then_some(())
    });
    assert_eq!(counting.sandbox.says("echo works"), "works\n");
}

/// A command ended before the deadline, and its server was stopped until after it: the answer came when
/// another node might have restored an earlier state already.
/// Promises: FL9.
#[test]
fn a_server_that_was_stopped_until_after_its_deadline_sends_no_answer() {
    let fixture = Fixture::with_patient_lease();
    let counting = fixture.counting("box", "store");
    let sandbox = counting.sandbox.clone();
    let asked = std::thread::spawn(move || {
        let command =
            "cd /workspace; touch begun; until [ -e go ]; do sleep 0.05; done; touch ended";
        sandbox.post("/exec", &json!({"command": command}))
    });
    isolet_kit::wait_until("the command runs", LEASE_ENDS, || {
        counting.has_file("begun").then_some(())
    });
    process::signal(fixture.server.pid(), Signal::STOP);
    counting.write_file("go");
    isolet_kit::wait_until("the command has ended", LEASE_ENDS, || {
        counting.has_file("ended").then_some(())
    });
    counting.freezes();
    fixture.waits_for_the_end_of_the_lease();
    process::signal(fixture.server.pid(), Signal::CONT);
    let reply = asked.join().unwrap();
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.json()["error"], "suspended", "{}", reply.text());
    assert!(reply.text().contains("may have had an effect"), "{}", reply.text());
}

/// etcd was restored from a backup: the node went on with what it believed to own, beside the nodes that
/// own it in the backup.
/// Promises: FL8.
#[test]
fn an_etcd_that_was_restored_from_a_backup_is_noticed() {
    let mut fixture = Fixture::with_long_lease();
    let kept = fixture.counting("kept", "store");
    fixture.etcd.back_up();
    let epoch = fixture.owner("kept").expect("it is owned").epoch;
    let later = fixture.counting("later", "store");
    fixture.waits_for_phase(&later, "running");
    fixture.advance(200);
    // The node hears of a later revision.
    let other = fixture.counting("other", "node");
    fixture.etcd.restore();
    isolet_kit::wait_until("what the backup does not know is superseded", LEASE_ENDS, || {
        (!fixture.superseded().is_empty()).then_some(())
    });
    assert!(!later.is_running(), "it runs, and etcd does not know it");
    fixture.waits_for_phase(&kept, "running");
    kept.counts();
    other.counts();
    assert_eq!(kept.sandbox.says("echo works"), "works\n");
    assert_eq!(fixture.owner("kept").map(|owner| owner.epoch), Some(epoch));
    assert_eq!(fixture.superseded().len(), 1);
}

/// An upgrade of the server must not stop anything.
/// Promises: FL2.
#[test]
fn a_restart_within_the_lease_changes_nothing() {
    let mut fixture = Fixture::with_long_lease();
    let counting = fixture.counting("box", "store");
    fixture.waits_for_phase(&counting, "running");
    let phase = fixture.phase(&counting).expect("it is recorded");
    fixture.server.restart();
    counting.counts();
    assert_eq!(counting.sandbox.says("echo works"), "works\n");
    assert_eq!(fixture.phase(&counting), Some(phase), "the same epoch and registration");
    let log = fixture.server.log();
    assert!(!log.contains("suspended"), "{log}");
}

/// A sleeping sandbox starts a new process tree when it wakes: the guard is asked again.
/// Promises: FL2.
#[test]
fn a_sandbox_does_not_wake_on_a_node_without_a_lease() {
    let fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    counting.sandbox.command("dev", "kill %1; wait");
    isolet_kit::wait_until("it sleeps", isolet_kit::SOON, || {
        (counting.sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    fixture.wire.cut();
    fixture.waits_for_phase(&counting, "suspended");
    counting.is_refused();
    fixture.wire.mend();
    fixture.waits_for_phase(&counting, "running");
    assert_eq!(counting.sandbox.says("echo awake"), "awake\n");
}

/// The guard dies while the server runs. Its successor learns of all sandboxes, and stops them at the
/// deadline.
/// Promises: FL2.
#[test]
fn a_guard_that_was_killed_is_replaced_and_knows_the_sandboxes() {
    let fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    let guard = guard_of(&fixture.server);
    isolet_kit::process::kill(guard);
    isolet_kit::wait_until("another guard runs", isolet_kit::SOON, || {
        find_guard(&fixture.server).filter(|pid| *pid != guard)
    });
    isolet_kit::wait_until("it knows the sandboxes", isolet_kit::SOON, || {
        fixture.server.log().contains("told another lease guard all sandboxes").then_some(())
    });
    counting.counts();
    let mut fixture = fixture;
    fixture.server.kill();
    counting.freezes();
    fixture.server.launch();
    counting.counts();
}

#[test]
fn a_server_outside_of_a_fleet_refuses_the_class() {
    let server = Server::start();
    let reply = server.http().post("/v1/sandboxes", &json!({"class": "store"}));
    assert_eq!(reply.status, 422, "{}", reply.text());
    let error = reply.json();
    assert_eq!(error["error"], "class_unavailable");
    assert!(error["message"].as_str().unwrap().contains("[cluster]"), "{error}");
    let reply = server.http().post("/v1/sandboxes", &json!({"class": "other"}));
    assert_eq!((reply.status, reply.json()["error"].as_str()), (400, Some("bad_field")));
    let made = server.sandbox_with(&json!({"class": "node"}));
    assert_eq!(made.info()["class"], "node");
}

fn guard_of(server: &Server) -> i32 {
    find_guard(server).expect("a guard runs")
}

fn find_guard(server: &Server) -> Option<i32> {
    let data = server.data().display().to_string();
    isolet_kit::process::all().into_iter().find(|pid| {
        let arguments = isolet_kit::process::arguments(*pid);
        arguments.contains("--lease-guard") && arguments.contains(&data)
    })
}
