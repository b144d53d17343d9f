//! What happens when the owner is another one than a node believes, or cannot be reached.

use crate::calls::{body, calls};
use crate::cluster::Cluster;
use isolet_kit::{Sandbox, json};
use isolet_sandbox::TenantId;

/// Promises: FW3.
#[test]
fn a_node_that_believes_in_the_wrong_owner_looks_again_and_repeats_the_request() {
    let cluster = Cluster::start(3);
    let sandbox = cluster.sandbox("box");
    for (node, epoch) in [("c", 1), ("b", 999)] {
        cluster.node("a").fleet.believe("default", "box", node, epoch);
        assert_eq!(sandbox.says("echo once"), "once\n", "a body is sent again");
        cluster.node("a").fleet.believe("default", "box", node, epoch);
        sandbox.shell().run("echo once").is("once\n", 0);
    }
    let executed = cluster.node("c").received().len();
    assert_eq!(executed, 2, "the node that is not the owner was asked once for each request");
    assert!(cluster.node("a").received().is_empty());
}

/// Promises: FW3.
#[test]
fn no_request_travels_in_a_circle() {
    let cluster = Cluster::start(3);
    let sandbox = cluster.sandbox("box");
    // The records themselves are wrong: each node believes in another one.
    let before = cluster.node("b").received().len();
    cluster.directory.move_to("default", "box", "c");
    cluster.node("a").fleet.believe("default", "box", "b", 1);
    cluster.node("b").fleet.believe("default", "box", "a", 2);
    cluster.node("c").fleet.believe("default", "box", "a", 2);
    let answered = sandbox.http.get(&sandbox.path(""));
    // The third node owns it by the records and has no such sandbox.
    assert_eq!(answered.expect(404).error(), "no_sandbox");
    assert_eq!(cluster.node("b").received().len(), before + 1);
    assert_eq!(cluster.node("c").received().len(), 1);
    assert!(cluster.node("a").received().is_empty(), "nothing comes back");
    cluster.directory.move_to("default", "box", "b");
}

/// Promises: FW3.
#[test]
fn a_long_upload_to_the_wrong_node_is_repeated_as_a_whole_or_refused() {
    let cluster = Cluster::start(3);
    let sandbox = cluster.sandbox("box");
    let body = vec![7; 4_000_000];
    for n in 0..10 {
        cluster.node("a").fleet.believe("default", "box", "c", 1);
        let path = sandbox.path(&format!("/files/big-{n}"));
        let saved = sandbox.http.send("PUT", &path, Some(&body));
        // It depends on how much was sent before the answer of the wrong node.
        if saved.status == 503 {
            assert_eq!(saved.error(), "owner_moved");
            assert_eq!(sandbox.http.get(&path).expect(404).error(), "not_found");
        } else {
            assert!(matches!(saved.status, 200..=204), "{}", saved.text());
            assert!(sandbox.http.get(&path).expect(200).body == body, "the whole body");
        }
    }
    let path = sandbox.path("/files/last");
    let saved = sandbox.http.send("PUT", &path, Some(&body));
    assert!(matches!(saved.status, 200..=204), "the owner is known by now: {}", saved.text());
}

/// Promises: FW3.
#[test]
fn a_node_that_cannot_be_reached_is_named() {
    let cluster = Cluster::start(3);
    let sandbox = cluster.sandbox("box");
    let mut shell = sandbox.shell();
    shell.run("true").is("", 0);
    cluster.node("b").fleet.cut_off();
    for reply in [
        sandbox.http.get(&sandbox.path("")),
        sandbox.post("/exec", &json!({"command": "true"})),
        sandbox.http.get(&sandbox.path("/ports/80/x")),
    ] {
        let reply = reply.expect(503);
        assert_eq!(reply.error(), "node_unreachable");
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert!(reply.text().contains("node \\\"b\\\""), "{}", reply.text());
    }
    assert_eq!(sandbox.try_open("").map(drop), Err(503));
    // The sandbox itself is not affected.
    assert_eq!(cluster.node("b").sandbox("box").says("echo up"), "up\n");
    // Sandboxes of other nodes are not affected either.
    cluster.directory.place_on("c");
    assert_eq!(cluster.node("a").sandbox("other").says("echo up"), "up\n");
}

/// Promises: FW3.
#[test]
fn a_new_sandbox_goes_to_another_node_if_the_chosen_one_cannot_be_reached() {
    let cluster = Cluster::start(3);
    cluster.node("b").fleet.cut_off();
    let sandbox = cluster.node("a").sandbox("fresh");
    assert_eq!(sandbox.says("echo up"), "up\n");
    assert_eq!(cluster.directory.owner("default", "fresh").as_deref(), Some("a"));
    let created = sandbox.http.post("/v1/sandboxes", &json!({"id": "more"}));
    assert!(matches!(created.status, 200 | 201), "{}", created.text());
}

/// Promises: FW6.
#[test]
fn the_owner_looks_whether_a_create_has_left_a_sandbox() {
    let cluster = Cluster::start(2);
    let http = cluster.node("a").http();
    let refused = http.post("/v1/sandboxes", &json!({"id": "bad", "image": "NOT AN IMAGE"}));
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    assert_eq!(cluster.node("b").fleet.settled(), ["bad"]);
    assert!(cluster.node("a").fleet.settled().is_empty());
    cluster.directory.place_on("a");
    http.post("/v1/sandboxes", &json!({"id": "worse", "image": "NOT AN IMAGE"}));
    assert_eq!(cluster.node("a").fleet.settled(), ["worse"]);
}

/// Promises: FW6.
#[test]
fn every_sandbox_has_an_owner_whichever_call_created_it() {
    let cluster = Cluster::start(2);
    let held = |node| cluster.node(node).service().quota(&TenantId::default_tenant()).0;
    let http = cluster.node("a").http();
    let mut created = 0;
    for (tried, call) in calls().into_iter().filter(|call| call.is_about_a_sandbox()).enumerate() {
        // The bridge knows only these letters.
        let id = format!("box{}", "x".repeat(tried));
        let path = call.path(&id);
        if call.is_socket {
            let sandbox = Sandbox { id: id.clone(), http: http.clone() };
            if let Some(rest) = path.strip_prefix(&sandbox.path("")) {
                let _ = sandbox.socket(rest).map(drop);
            }
        }
        let text = body(&call).map(|body| body.to_string());
        let _ = http.try_send(&call.method, &path, text.as_deref().map(str::as_bytes));
        assert_eq!(held("a"), 0, "{call:?}: a sandbox without an owner");
        if held("b") > 0 {
            let owner = cluster.directory.owner("default", &id);
            assert_eq!(owner.as_deref(), Some("b"), "{call:?}");
            created += 1;
            http.delete(&format!("/v1/sandboxes/{id}")).expect(200);
        }
    }
    assert!(created >= 12, "{created} calls create a sandbox");
}
