//! Three servers in network namespaces that are no fleet: what the harness itself must do.

use isolet_fleet_tests::addresses::{CLIENTS, PUBLIC};
use isolet_fleet_tests::{CutDirection, FleetOptions, LocalFleet, PublicHost};
use isolet_kit::{json, process};

/// Three servers on one machine have sandboxes, egress, control groups and ids of their own.
#[test]
fn three_servers_in_namespaces_share_nothing() {
    let options = FleetOptions { is_clustered: false, ..FleetOptions::default() };
    let fleet = LocalFleet::with(&options);
    let rules = json!({"allow": [format!("{PUBLIC}:{}", PublicHost::PORT)]});
    let mut uids = Vec::new();
    let mut groups = Vec::new();
    for node in &fleet.nodes {
        let spec = json!({"id": "box", "network": rules});
        node.http().post("/v1/sandboxes", &spec).expect(201);
        let sandbox = node.sandbox("box");
        let from = sandbox.says(&format!("cat </dev/tcp/{PUBLIC}/{}", PublicHost::PORT));
        assert_eq!(from, format!("{}\n", node.address), "its egress is its own");
        let closed = sandbox.exec(&format!("timeout 3 cat </dev/tcp/{CLIENTS}/80"));
        assert_ne!(closed["exit_code"], 0);
        let agent = node.server.agent();
        let status = std::fs::read_to_string(format!("/proc/{agent}/status")).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("Uid:")).expect("a line");
        uids.push(line.to_owned());
        groups.extend(node.server.parent_cgroups());
    }
    uids.dedup();
    assert_eq!(uids.len(), 3, "{uids:?}");
    let count = groups.len();
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), count);
    // A cut loses packets of open connections, and its end lets them pass again.
    let node = fleet.node("b");
    let sandbox = node.sandbox("box");
    let mut shell = sandbox.shell();
    shell.run("x=1").is("", 0);
    let cut = node.cut("clients", &[CLIENTS], CutDirection::Incoming);
    let id = shell.start(isolet_kit::Start::new("echo $x"));
    assert!(shell.next(std::time::Duration::from_millis(300)).is_none());
    drop(cut);
    let outcome = shell.finish(&id);
    assert_eq!((outcome.text().as_str(), outcome.code), ("1\n", Some(0)));
    let pid = node.server.pid();
    assert!(process::name(pid).starts_with("isolet"), "nsenter becomes the server");
}
