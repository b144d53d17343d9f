//! A node that finds another fleet than its own refuses to start.

use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{LONG, wait_until};
use std::fs;

/// A typo in `prefix` ended all sandboxes of the class `store` at the next start of their node: nobody owned
/// them in the new, empty fleet.
/// Promises: FL54.
#[test]
fn a_node_with_the_prefix_of_another_fleet_ends_nothing() {
    let mut fleet = LocalFleet::with(&FleetOptions {
        has_store: true,
        lease_ttl_s: 60,
        nodes: 1,
        ..FleetOptions::default()
    });
    let made = fleet.create_stored("a", "box");
    made.says("echo kept >/workspace/file");
    let before = made.info()["boots"].clone();
    let server = &mut fleet.node_mut("a").server;
    let file = server.data().parent().expect("a directory").join("isolet.toml");
    let right = fs::read_to_string(&file).expect("a configuration");
    let wrong = right.replace("[cluster]\n", "[cluster]\nprefix = \"isoelt\"\n");
    assert_ne!(right, wrong);
    fs::write(&file, &wrong).expect("written");
    server.stop();
    server.launch_with("UNUSED", "");
    wait_until("it refuses to start", LONG, || server.has_ended().then_some(()));
    let log = server.log();
    assert!(log.contains("belongs to the fleet") && log.contains("--accept-fleet"), "{log}");
    fs::write(&file, &right).expect("written");
    server.launch();
    let node = fleet.node("a");
    assert_eq!(fleet.etcd().keys("isoelt/"), [""; 0]);
    let made = node.sandbox("box");
    assert_eq!(made.says("cat /workspace/file"), "kept\n");
    assert_eq!(made.info()["boots"], before, "it has run on");
    // The operator accepts it.
    let server = &mut fleet.node_mut("a").server;
    fs::write(&file, &wrong).expect("written");
    server.stop();
    server.launch_with("ISOLET_ACCEPT_FLEET", "true");
    server.wait_until_ready();
    assert!(!fleet.etcd().keys("isoelt/").is_empty());
    wait_until("nobody owns the sandbox there", LONG, || {
        fleet.node("a").held().is_empty().then_some(())
    });
}
