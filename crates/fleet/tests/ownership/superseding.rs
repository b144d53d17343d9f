//! Sandboxes that another node has taken over.

use crate::fixture::{Counting, Fixture, LEASE_ENDS};
use isolet_kit::{Options, SOON, json, wait_until};

fn is_superseded(fixture: &Fixture, of: &Counting) {
    wait_until("it is ended", LEASE_ENDS, || (!of.has_files()).then_some(()));
    wait_until("its record is gone", LEASE_ENDS, || {
        fixture.row("SELECT name FROM sandboxes WHERE name = ?1", &of.name).is_none().then_some(())
    });
    wait_until("its view is gone", LEASE_ENDS, || fixture.phase(of).is_none().then_some(()));
    let [kept] = fixture.superseded().try_into().expect("one directory");
    let name = kept.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(&format!("{}-", of.sandbox.id)), "{name}");
    assert!(std::fs::metadata(kept.join("workspace/count")).unwrap().len() > 0);
    let record = std::fs::read_to_string(kept.join("record.json")).unwrap();
    assert!(record.contains("\"superseded\""), "{record}");
}

/// Promises: FL3.
#[test]
fn a_sandbox_that_was_taken_over_is_ended_and_its_files_are_kept() {
    let fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    let path = counting.sandbox.path("/events");
    let mut events = fixture.server.http().try_open("GET", &path, None).expect("an answer");
    fixture.wire.cut();
    counting.freezes();
    let owner = fixture.take_over("box");
    fixture.wire.mend();
    is_superseded(&fixture, &counting);
    let mut names = Vec::new();
    while let Some(event) = events.event() {
        names.push(event.name);
    }
    assert_eq!(names.last().map(String::as_str), Some("superseded"), "{names:?}");
    assert!(!names.iter().any(|name| name == "destroyed"), "{names:?}");
    assert_eq!(
        fixture.owner("box").map(|owner| owner.epoch),
        Some(owner.epoch),
        "it is not touched"
    );
    let log = fixture.server.log();
    assert!(log.contains("another node has taken the sandbox over"), "{log}");
}

/// The server dies at each step of the end. The next one continues, and moves the files once.
/// Promises: FL3.
#[test]
fn a_server_that_is_killed_while_it_ends_a_sandbox_continues() {
    for point in ["delete.recorded", "delete.killed", "delete.removed"] {
        let options = Options::new().env("ISOLET_FAILPOINTS", &format!("{point}=abort"));
        let mut fixture = Fixture::with(options, "");
        let counting = fixture.counting("box", "store");
        fixture.wire.cut();
        counting.freezes();
        fixture.take_over("box");
        fixture.wire.mend();
        let status = fixture.server.wait();
        assert!(!status.success(), "{point}: {status}");
        fixture.server.use_programs_under_test();
        fixture.server.launch();
        is_superseded(&fixture, &counting);
    }
}

/// A node that no longer owns the sandbox pushes a snapshot: it counts for nobody, and the node learns
/// from the refusal that it does not own the sandbox.
/// Promises: FL22.
#[test]
fn a_push_with_an_outdated_epoch_is_refused() {
    let fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    let sandbox = &counting.sandbox;
    let taken = sandbox.post("/snapshots", &json!({})).expect(201).json();
    fixture.steal("box");
    let push = format!("/v1/snapshots/{}/push", taken["id"].as_str().expect("an id"));
    let refused = sandbox.http.post(&push, &json!({})).expect(503);
    assert_eq!(refused.error(), "suspended", "{}", refused.text());
    assert!(refused.text().contains("second"), "{}", refused.text());
    is_superseded(&fixture, &counting);
    let log = fixture.server.log();
    assert!(log.contains("a write with the epoch of this node was refused"), "{log}");
    assert_eq!(fixture.owner("box").map(|owner| owner.node.to_string()).as_deref(), Some("second"));
}

/// A deletion is recorded for all nodes before anything is removed, so that none restores the sandbox.
/// Promises: FL20.
#[test]
fn a_deletion_that_the_fleet_cannot_know_is_refused() {
    let fixture = Fixture::new();
    let counting = fixture.counting("box", "store");
    let sandbox = &counting.sandbox;
    fixture.wire.cut();
    let refused = sandbox.http.delete(&sandbox.path(""));
    assert_eq!(refused.status, 503, "{}", refused.text());
    fixture.wire.mend();
    wait_until("it is deleted", SOON, || {
        (sandbox.http.delete(&sandbox.path("")).status == 200).then_some(())
    });
    wait_until("it is given up", SOON, || fixture.owner("box").is_none().then_some(()));
}
