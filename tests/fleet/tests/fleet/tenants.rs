//! Tenants on nodes that do not own the sandbox. The package `isolet-forwarding` has the rows that need
//! neither etcd nor certificates, and says why T18 has none.

use isolet_fleet_tests::{KEY, LocalFleet};
use isolet_kit::{Frame, Http, SOON, Sandbox, Value, json, wait_until};

/// Promises: FW4.
#[test]
fn t2_another_tenants_sandbox_on_another_node_is_answered_like_an_unknown_one() {
    let mut fleet = LocalFleet::start();
    let sandbox = fleet.create_on("b", "box");
    sandbox.says("echo secret >/workspace/file");
    sandbox.listen(8000);
    let key = fleet.node_mut("a").server.add_key(&["--tenant", "other"]);
    let other = fleet.node("a").server.client(Some(&key));
    let paths = [
        "",
        "/files/file",
        "/sessions",
        "/ports",
        "/ports/8000/echo",
        "/events",
        "/links",
        "/processes",
    ];
    let ask = |http: &Http, id: &str, path: &str| {
        let reply = http.get(&format!("/v1/sandboxes/{id}{path}"));
        (reply.status, reply.text().replace(&format!("no sandbox {id}"), "no sandbox ID"))
    };
    for path in paths {
        assert_eq!(ask(&other, "box", path), ask(&other, "none", path), "{path}");
    }
    for (path, body) in [("/exec", json!({"command": "true"})), ("/sleep", json!({}))] {
        let theirs = other.with("accept", "application/json");
        let reply = theirs.post(&format!("/v1/sandboxes/box{path}"), &body);
        assert!(!reply.text().contains("secret"), "{}", reply.text());
    }
    // `exec` has created a sandbox of the other tenant with the same id.
    assert!(fleet.owner_of("other", "box").is_some());
    let own = Sandbox { id: "box".to_owned(), http: other.clone() };
    assert_eq!(own.says("cat /workspace/file 2>/dev/null; echo mine"), "mine\n");
    assert_eq!(sandbox.says("cat /workspace/file"), "secret\n");
    let list = other.get("/v1/sandboxes").expect(200).json();
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    own.delete();
    assert_eq!(sandbox.says("cat /workspace/file"), "secret\n");
    assert_eq!(other.delete("/v1/sandboxes/box").expect(404).error(), "no_sandbox");
}

/// Promises: FW4.
#[test]
fn t14_a_client_cannot_speak_as_a_node() {
    let mut fleet = LocalFleet::start();
    let sandbox = fleet.create_on("b", "box");
    let head = json!({
        "caller": {"tenant": "default", "read_only": false, "key": null, "ticket": null},
        "target": {"tenant": "default", "sandbox": "box", "epoch": 1},
        "port_label": null, "client": "192.0.2.1", "tls": false
    });
    let key = fleet.node_mut("a").server.add_key(&["--tenant", "other"]);
    let reader = fleet.node_mut("a").server.add_key(&["--read-only"]);
    for node in &fleet.nodes {
        for key in [None, Some(key.as_str())] {
            let forged = node.server.client(key).with("isolet-peer", &head.to_string());
            let status = forged.get(&sandbox.path("")).status;
            assert!(matches!(status, 400 | 401), "{}: {status}", node.name);
        }
    }
    // A key that may only read stays one on the owner, and an unknown key is one everywhere.
    let reader = fleet.node("a").server.client(Some(&reader));
    assert_eq!(reader.get(&sandbox.path("")).status, 200);
    let refused = reader.post(&sandbox.path("/exec"), &json!({"command": "true"})).expect(403);
    assert_eq!(refused.error(), "read_only");
    let unknown = fleet.node("a").server.client(Some("isolet_unknown-key-of-nobody"));
    unknown.get(&sandbox.path("")).expect(401);
    fleet.node("a").server.client(None).get(&sandbox.path("")).expect(401);
}

/// Promises: FW4.
#[test]
fn t12_the_limit_of_a_tenant_counts_its_sandboxes_on_all_nodes() {
    let options = isolet_fleet_tests::FleetOptions {
        config: "[tenants.default]\nsandboxes_max = 3\n".to_owned(),
        ..isolet_fleet_tests::FleetOptions::default()
    };
    let fleet = LocalFleet::with(&options);
    let create = |node: &str, id: &str| {
        let spec = json!({"id": id, "memory_mib": 64});
        fleet.node(node).http().post("/v1/sandboxes", &spec)
    };
    for node in crate::NODES {
        create(node, node).expect(201);
    }
    for node in crate::NODES {
        let refused = create(node, "fourth");
        assert_eq!((refused.status, refused.error().as_str()), (429, "too_many_sandboxes"));
        assert_eq!(fleet.owner("fourth"), None);
    }
    fleet.node("b").sandbox("a").delete();
    wait_until("there is room for another one", SOON, || {
        (create("c", "fourth").status == 201).then_some(())
    });
}

/// Promises: FW2, FW4.
#[test]
fn t13_t15_a_revoked_key_ends_what_is_forwarded_and_etcd_holds_no_secret() {
    let mut fleet = LocalFleet::start();
    fleet.create_on("b", "box");
    let key = fleet.node_mut("a").server.add_key(&["--label", "one"]);
    let through = Sandbox { id: "box".to_owned(), http: fleet.node("a").server.client(Some(&key)) };
    let spec = json!({"id": "with-env", "memory_mib": 64, "env": {"TOKEN": "canary-in-env"}});
    through.http.post("/v1/sandboxes", &spec).expect(201);
    through.post("/exec", &json!({"command": "echo canary-of-command"})).expect(200);
    let mut shell = through.shell();
    shell.run("true").is("", 0);
    let all = fleet.etcd().etcdctl(&["get", "--prefix", ""]);
    assert!(all.contains("owners/default/box"), "{all}");
    for secret in [key.as_str(), KEY, "canary-in-env", "canary-of-command"] {
        assert!(!all.contains(secret), "{secret}");
    }
    let list = fleet.node("a").server.command(&["keys", "ls", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let keys = list.as_array().or_else(|| list["keys"].as_array()).expect("keys").iter();
    let id = keys.filter(|one| one["label"] == "one").find_map(|one| one["id"].as_str());
    let revoked = fleet.node("a").server.command(&["keys", "revoke", id.expect("an id")]);
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    wait_until("the shell ends", SOON, || {
        shell.next(SOON).filter(|frame| matches!(frame, Frame::Close(_)))
    });
    through.http.get(&through.path("")).expect(401);
}
