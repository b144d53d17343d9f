//! Nodes over the API: who sees what, and who may change what.

use crate::cluster::Cluster;
use isolet_kit::{Http, Server, Value, json};

fn field<'a>(list: &'a Value, node: &str) -> &'a Value {
    let nodes = list["nodes"].as_array().expect("a list");
    nodes.iter().find(|one| one["name"] == node).expect("the node is listed")
}

#[test]
fn tenants_see_names_regions_labels_and_states_and_the_operator_sees_all() {
    let cluster = Cluster::start(2);
    let (_, secret) = cluster.add_key("a", "other", false);
    let tenant = cluster.node("a").client(Some(&secret));
    let list = tenant.get("/v1/nodes").expect(200).json();
    assert_eq!(list["here"], "a");
    let expected =
        json!({"name": "b", "region": "here", "labels": {}, "state": "ready", "cordoned": false});
    assert_eq!(field(&list, "b"), &expected);
    assert!(list["skipped"].is_null(), "{list}");
    assert_eq!(tenant.get("/v1/nodes/b").expect(200).json(), expected);
    assert!(!tenant.get("/v1/nodes").text().contains("127.0.0.1"), "no address");
    let list = cluster.node("b").http().get("/v1/nodes").expect(200).json();
    assert_eq!(list["here"], "b");
    assert!(field(&list, "a")["details"]["address"].is_string(), "{list}");
    assert_eq!(list["skipped"][0]["key"], "isolet/nodes/x");
    for path in ["/v1/nodes/none", "/v1/nodes/A_B"] {
        for http in [&tenant, &cluster.node("a").http()] {
            assert_eq!(http.get(path).expect(404).error(), "no_node", "{path}");
        }
    }
}

#[test]
fn only_the_operator_changes_nodes_and_the_audit_log_has_it() {
    let cluster = Cluster::start(2);
    let (_, secret) = cluster.add_key("a", "other", false);
    let tenant = cluster.node("a").client(Some(&secret));
    let (_, secret) = cluster.add_key("a", "default", true);
    let reader = cluster.node("a").client(Some(&secret));
    for call in ["cordon", "uncordon", "declare-dead"] {
        let path = format!("/v1/nodes/b/{call}");
        assert_eq!(tenant.post(&path, &json!({})).expect(403).error(), "not_yours", "{call}");
        assert_eq!(reader.post(&path, &json!({})).expect(403).error(), "read_only", "{call}");
    }
    assert_eq!(tenant.delete("/v1/nodes/b").expect(403).error(), "not_yours");
    let http = cluster.node("a").http();
    let cordoned = http.post("/v1/nodes/b/cordon", &json!({})).expect(200).json();
    assert_eq!(cordoned["cordoned"], true);
    assert_eq!(field(&http.get("/v1/nodes").json(), "b")["cordoned"], true);
    let open = http.post("/v1/nodes/b/uncordon", &json!({})).expect(200).json();
    assert_eq!(open["cordoned"], false);
    let alive = http.post("/v1/nodes/a/declare-dead", &json!({})).expect(409);
    assert_eq!(alive.error(), "node_alive");
    assert_eq!(http.delete("/v1/nodes/b").expect(409).error(), "node_not_dead");
    let log = http.get("/v1/audit").expect(200).text();
    for event in ["node.cordon", "node.uncordon"] {
        let line = log.lines().find(|line| line.contains(&format!("\"{event}\"")));
        assert!(line.is_some_and(|line| line.contains("\"node\":\"b\"")), "{event}: {log}");
    }
    assert!(!log.contains("node.declare_dead"), "a refused call changed nothing: {log}");
}

#[test]
fn a_dead_node_is_forgotten_once_it_owns_nothing() {
    let cluster = Cluster::start(2);
    cluster.sandbox("box");
    let http = cluster.node("a").http();
    let dead = http.post("/v1/nodes/b/declare-dead", &json!({})).expect(200).json();
    assert_eq!(dead["state"], "dead");
    assert_eq!(http.delete("/v1/nodes/b").expect(409).error(), "node_owns_sandboxes");
    assert_eq!(http.delete("/v1/nodes/b?relase=1").expect(400).error(), "bad_request");
    let gone = http.delete("/v1/nodes/b?release=true").expect(200).json();
    assert_eq!(gone, json!({"name": "b", "released": 1}));
    assert_eq!(cluster.directory.owner("default", "box"), None);
}

#[test]
fn a_request_demands_a_region_and_labels_and_the_answer_says_where_the_sandbox_is() {
    let cluster = Cluster::start(2);
    let http = cluster.node("a").http();
    let body = json!({"id": "box", "region": "eu", "labels": {"gpu": "yes"}});
    let made = http.post("/v1/sandboxes", &body).expect(201).json();
    {
        let wish = cluster.directory.wish.lock().expect("no test panics with it");
        assert_eq!(wish.region.as_deref(), Some("eu"));
        assert_eq!(wish.labels.get("gpu").map(String::as_str), Some("yes"));
    }
    let list = http.get("/v1/sandboxes").expect(200).json();
    for one in [&made, &http.get("/v1/sandboxes/box").expect(200).json(), &list[0]] {
        assert_eq!((&one["node"], &one["region"]), (&json!("b"), &json!("here")), "{one}");
        assert_eq!(one["placement_reason"], "a test wants box here");
    }
    for bad in [json!({"region": 1}), json!({"labels": []}), json!({"labels": {"a": 1}})] {
        assert_eq!(http.post("/v1/sandboxes", &bad).expect(400).error(), "bad_request", "{bad}");
    }
}

#[test]
fn a_server_alone_has_no_nodes_and_refuses_to_choose_one() {
    let server = Server::start();
    let http = server.http();
    for path in ["/v1/nodes", "/v1/nodes/a"] {
        assert_eq!(http.get(path).expect(501).error(), "not_a_fleet");
    }
    for path in ["/v1/nodes/a/cordon", "/v1/nodes/a/uncordon", "/v1/nodes/a/declare-dead"] {
        assert_eq!(http.post(path, &json!({})).expect(501).error(), "not_a_fleet");
    }
    assert_eq!(http.delete("/v1/nodes/a").expect(501).error(), "not_a_fleet");
    assert_eq!(Http::new(server.port(), None).get("/v1/nodes").status, 401);
    for body in [json!({"region": "eu"}), json!({"labels": {"gpu": "yes"}})] {
        assert_eq!(http.post("/v1/sandboxes", &body).expect(422).error(), "not_a_fleet", "{body}");
    }
    let made = http.post("/v1/sandboxes", &json!({"id": "box", "labels": {}})).expect(201).json();
    assert!(made["node"].is_null() && made["placement_reason"].is_null(), "{made}");
}
