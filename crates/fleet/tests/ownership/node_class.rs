//! Sandboxes of the class `node`, which only an operator lets another node take over.

use crate::fixture::{Fixture, LEASE_ENDS};
use isolet_kit::wait_until;

/// Promises: FL4.
#[test]
fn a_sandbox_of_the_class_node_keeps_running_without_etcd() {
    let fixture = Fixture::new();
    let counting = fixture.counting("box", "node");
    let stored = fixture.counting("other", "store");
    fixture.waits_for_phase(&counting, "running");
    let before = fixture.phase(&counting);
    fixture.wire.cut();
    stored.freezes();
    counting.counts();
    assert_eq!(counting.asked().status, 200, "its node still answers for it");
    // So that the node gets another registration.
    fixture.waits_for_the_end_of_the_lease();
    fixture.wire.mend();
    stored.counts();
    wait_until("its epoch is compared under the new registration", LEASE_ENDS, || {
        (fixture.phase(&counting) != before).then_some(())
    });
    fixture.waits_for_phase(&counting, "running");
    counting.counts();
    assert!(fixture.superseded().is_empty());
}

/// An operator declares the node dead, and another one takes over one of two sandboxes. When the node
/// returns, it ends that one, and continues the other one after it has compared it.
/// Promises: FL4.
#[test]
fn a_node_that_was_declared_dead_compares_before_it_continues() {
    let fixture = Fixture::new();
    let lost = fixture.counting("lost", "node");
    let own = fixture.counting("own", "node");
    fixture.waits_for_phase(&lost, "running");
    fixture.waits_for_phase(&own, "running");
    fixture.wire.cut();
    fixture.declare_dead();
    own.counts();
    fixture.take_over("lost");
    fixture.wire.mend();
    wait_until("it is ended", LEASE_ENDS, || (!lost.has_files()).then_some(()));
    wait_until("its files are kept", LEASE_ENDS, || {
        (fixture.superseded().len() == 1).then_some(())
    });
    own.counts();
    fixture.waits_for_phase(&own, "running");
    let log = fixture.server.log();
    assert!(log.contains("was declared dead") && log.contains("suspended"), "{log}");
    assert_eq!(own.sandbox.says("echo works"), "works\n");
}
