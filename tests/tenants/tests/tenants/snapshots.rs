//! T2: one tenant's snapshots for another tenant: every way to name one, whether as an id or as a name.

use isolet_kit::{Http, Options, Reply, Rows, Server, Value, json};
use std::path::Path;

/// A name and an id that nobody uses, of the lengths of those in use.
const NO_NAME: &str = "base-image-of-none";
const NO_ID: &str = "snap_aaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Calls that name a snapshot (`NAME`); the sandbox in a path is the caller's own.
fn calls() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("POST", "/v1/sandboxes", json!({"id": "new", "snapshot": "NAME"})),
        ("PUT", "/v1/sandboxes/put", json!({"snapshot": "NAME"})),
        ("POST", "/v1/sandboxes/own/restore", json!({"snapshot": "NAME"})),
        ("POST", "/v1/images", json!({"snapshot": "NAME", "name": "stolen"})),
        ("GET", "/v1/snapshots/NAME", Value::Null),
        ("DELETE", "/v1/snapshots/NAME", Value::Null),
        ("GET", "/v1/snapshots/NAME/files", Value::Null),
        ("GET", "/v1/snapshots/NAME/files/secret", Value::Null),
        ("GET", "/v1/snapshots/NAME/files/workspace/secret", Value::Null),
        ("GET", "/v1/snapshots/NAME/diff/mine", Value::Null),
        ("GET", "/v1/snapshots/mine/diff/NAME", Value::Null),
        ("POST", "/v1/snapshots/NAME/push", Value::Null),
        ("POST", "/v1/store/snapshots/NAME/pull", json!({})),
        ("GET", "/v1/store/snapshots/NAME", Value::Null),
        ("DELETE", "/v1/store/snapshots/NAME", Value::Null),
        ("POST", "/v1/runs", json!({"snapshot": "NAME", "timeout": 60})),
        ("POST", "/v1/runs", json!({"snapshot_id": "NAME", "timeout": 60})),
        ("DELETE", "/v1/runs/own/snapshots/NAME", Value::Null),
    ]
}

fn call(http: &Http, (method, path, body): &(&str, &str, Value), name: &str) -> Reply {
    let body = body.to_string().replace("NAME", name);
    let body = (body != "null").then_some(body.as_bytes());
    http.send(method, &path.replace("NAME", name), body)
}

/// A server with a store of snapshots in a directory.
fn with_store(folder: &Path) -> Server {
    let objects = folder.join("objects");
    std::fs::create_dir(&objects).expect("is new");
    let key = folder.join("key");
    let config = format!(
        "[store]\nurl = \"file://{}\"\nkey_file = \"{}\"\n",
        objects.display(),
        key.display()
    );
    let server = Options::new().config(&config).start();
    let init = server.program().args(["store", "init"]).output().expect("it starts");
    assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
    server
}

/// Status and text of an answer, without the name that was asked for.
fn shape(reply: &Reply, name: &str) -> (u16, String) {
    (reply.status, reply.text().replace(name, "NAME"))
}

/// Promises: T2, SN5.
#[test]
fn t2_a_snapshot_of_another_tenant_is_answered_like_an_unknown_one() {
    let store = tempfile::tempdir().expect("a directory");
    let mut server = with_store(store.path());
    let other = server.add_key(&["--tenant", "other"]);
    let other = server.client(Some(&other));
    let sandbox = server.sandbox_with(&json!({"id": "own"}));
    sandbox.says("echo canary-of-default >/workspace/secret");
    let taken =
        sandbox.post("/snapshots", &json!({"name": "base-image-of-mine"})).expect(201).json();
    let id = taken["id"].as_str().expect("an id").to_owned();
    // In the store too, where a pull could find it.
    server.http().post(&format!("/v1/snapshots/{id}/push"), &Value::Null).expect(200);
    other.post("/v1/sandboxes", &json!({"id": "own"})).expect(201);
    other.post("/v1/sandboxes/own/snapshots", &json!({"name": "mine"})).expect(201);
    let mut rows = Rows::new();
    for one in calls() {
        rows.row(&format!("{} {} {}", one.0, one.1, one.2), || {
            for (name, unknown) in
                [("base-image-of-mine", NO_NAME), (id.as_str(), &NO_ID[..id.len()])]
            {
                let never = call(&other, &one, unknown);
                let reply = call(&other, &one, name);
                assert!((400..500).contains(&reply.status), "{} {}", reply.status, reply.text());
                assert_eq!(shape(&reply, name), shape(&never, unknown));
                assert!(!reply.text().contains("canary"), "{}", reply.text());
            }
            assert_eq!(server.ids(&other), ["own"], "it created nothing");
        });
    }
    rows.row("lists and filters", || {
        for path in ["/v1/snapshots", "/v1/snapshots?sandbox=own", "/v1/snapshots?limit=1"] {
            let listed = other.get(path);
            let text = listed.text();
            assert!(!text.contains(&id) && !text.contains("base-image"), "{path}: {text}");
        }
    });
    rows.row("an idempotency key of the other tenant", || {
        let keyed = |http: &Http| {
            let once = http.with("idempotency-key", "same");
            once.post("/v1/sandboxes/own/snapshots", &json!({})).expect(201).json()["id"].clone()
        };
        let own = keyed(&server.http());
        let theirs = keyed(&other);
        assert_ne!(own, theirs);
        for (http, id) in [(server.http(), own), (other.clone(), theirs)] {
            http.delete(&format!("/v1/snapshots/{}", id.as_str().expect("an id"))).expect(200);
        }
    });
    rows.row("the snapshot is as it was", || {
        assert_eq!(server.http().get(&format!("/v1/snapshots/{id}")).expect(200).json(), taken);
        let copy = server.sandbox_with(&json!({"snapshot": id}));
        assert_eq!(copy.says("cat /workspace/secret"), "canary-of-default\n");
    });
    rows.row("forks of a foreign id are of the caller's own sandbox", || {
        let forked = other.post("/v1/sandboxes/own/fork", &json!({"count": 1})).expect(201).json();
        let fork = forked["forks"][0]["id"].as_str().expect("an id");
        let seen = other.post(&format!("/v1/sandboxes/{fork}/exec"), &json!({"command": "ls -A"}));
        assert_eq!(seen.expect(200).json()["stdout"], "");
    });
    server.http().delete(&format!("/v1/snapshots/{id}")).expect(200);
    other.delete("/v1/snapshots/mine").expect(200);
}
