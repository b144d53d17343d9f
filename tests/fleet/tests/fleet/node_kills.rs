//! SIGKILL of nodes, and of everything.

use crate::{NODES, ROUNDS};
use isolet_fleet_tests::{FleetOptions, LocalFleet};
use isolet_kit::{SOON, Sandbox, Shell, wait_until};

/// What identifies the shell of a session: its pid and a variable.
fn state(sandbox: &Sandbox) -> String {
    let mut shell: Shell = sandbox.session("dev");
    let said = shell.run("echo $$ $x").text();
    shell.close();
    said
}

/// Promises: FL10, FW3.
#[test]
fn a_killed_node_is_unreachable_until_it_is_back_and_its_processes_continue() {
    let mut fleet = LocalFleet::start();
    for node in NODES {
        let sandbox = fleet.create_on(node, node);
        assert_eq!(sandbox.command("dev", &format!("x={node}"))["exit_code"], 0);
        sandbox.says("echo file >/workspace/file");
    }
    for round in 0..ROUNDS {
        let victim = NODES[round % NODES.len()];
        let witness = NODES[(round + 1) % NODES.len()];
        let through = fleet.node(witness).sandbox(victim);
        let before = state(&through);
        let agent = fleet.node(victim).server.agent();
        let mut open = through.session("dev");
        open.run("true").is("", 0);
        fleet.node_mut(victim).server.kill();
        let refused = through.http.get(&through.path("")).expect(503);
        assert_eq!(refused.error(), "node_unreachable");
        assert!(refused.text().contains(&format!("\\\"{victim}\\\"")), "{}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
        // An open shell ends; nothing else of the fleet does.
        wait_until("the shell's socket ends", SOON, || {
            let closed = |frame| matches!(frame, isolet_kit::Frame::Close(_));
            open.next(SOON).filter(|frame| closed(frame.clone()))
        });
        let other = fleet.node(witness).sandbox(witness);
        assert_eq!(other.says("cat /workspace/file"), "file\n");
        let list = fleet.node(witness).http().get("/v1/sandboxes").expect(200);
        assert_eq!(list.header("isolet-unreachable-nodes"), Some(victim));
        fleet.node_mut(victim).server.launch();
        let after = wait_until("the node answers again", SOON, || {
            let info = through.http.get(&through.path(""));
            (info.status == 200).then(|| state(&through))
        });
        assert_eq!(after, before, "the same shell with the same variable");
        assert_eq!(fleet.node(victim).server.agent(), agent);
        assert_eq!(through.says("cat /workspace/file"), "file\n");
        assert_eq!(fleet.owner(victim).as_deref(), Some(victim));
    }
}

/// Promises: FL10, FL11.
#[test]
fn a_restart_of_everything_loses_nothing() {
    // The lease is longer than a busy machine takes to start everything.
    let options = FleetOptions { has_store: true, lease_ttl_s: 30, ..FleetOptions::default() };
    let mut fleet = LocalFleet::with(&options);
    // The last one is of the class `store`: it continues too, because the lease does.
    let ids = ["a", "b", "c", "stored"];
    let mut states = Vec::new();
    for id in ids {
        let sandbox = match id {
            "stored" => fleet.create_stored("a", id),
            node => fleet.create_on(node, node),
        };
        assert_eq!(sandbox.command("dev", &format!("x={id}"))["exit_code"], 0);
        states.push(state(&sandbox));
    }
    for _ in 0..ROUNDS {
        let epochs = |fleet: &LocalFleet| {
            ids.map(|id| fleet.etcd().created_at(&format!("isolet/owners/default/{id}")))
        };
        let before = epochs(&fleet);
        fleet.nodes.iter_mut().for_each(|node| node.server.kill());
        let etcd = fleet.etcd.as_mut().expect("a fleet");
        (0..3).for_each(|member| etcd.kill(member));
        etcd.launch_all();
        fleet.nodes.iter_mut().for_each(|node| node.server.launch());
        for (index, id) in ids.into_iter().enumerate() {
            let through = fleet.node(NODES[(index + 1) % NODES.len()]).sandbox(id);
            let after = wait_until("the sandbox answers", SOON, || {
                let info = through.http.get(&through.path(""));
                (info.status == 200).then(|| state(&through))
            });
            assert_eq!(after, states[index]);
        }
        assert_eq!(epochs(&fleet), before);
    }
}
