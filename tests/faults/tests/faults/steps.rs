//! A failure at every step of create and delete in turn: the sandbox is complete or gone.

use isolet_kit::{Rows, SOON, Server, json, quickly, wait_until};

const CREATE: [&str; 5] = [
    "create.before_record",
    "create.recorded",
    "create.jailed",
    "create.greeted",
    "create.answered",
];
const DELETE: [&str; 3] = ["delete.recorded", "delete.killed", "delete.removed"];

/// A server whose next start has these failpoints.
pub(crate) fn failing(points: &str) -> Server {
    let mut server = Server::start();
    server.stop();
    server.launch_with("ISOLET_FAILPOINTS", points);
    server.wait_until_ready();
    server
}

/// Promises: F1.
#[test]
fn f1_a_server_killed_at_any_step_of_create_leaves_a_complete_sandbox_or_none() {
    let mut rows = Rows::new();
    for point in CREATE {
        rows.row(point, || {
            let mut server = failing(&format!("{point}=abort"));
            let once = server.http().with("idempotency-key", "k");
            let body = json!({"id": "one"}).to_string();
            assert!(once.try_send("POST", "/v1/sandboxes", Some(body.as_bytes())).is_err());
            assert!(!server.wait().success());
            server.launch();
            let seen = server.http().get("/v1/sandboxes/one");
            assert!(matches!(seen.status, 200 | 404), "{}", seen.text());
            if seen.status == 200 {
                assert_eq!(seen.json()["state"], "running", "{}", seen.text());
            }
            let retried = once.post("/v1/sandboxes", &json!({"id": "one"}));
            assert!(matches!(retried.status, 200 | 201), "{}", retried.text());
            assert_eq!(server.ids(&server.http()), ["one"]);
            assert_eq!(server.named("one").says("echo works"), "works\n");
            server.healthy();
        });
    }
}

#[test]
fn f1_an_error_at_any_step_of_create_leaves_nothing() {
    let mut rows = Rows::new();
    for point in CREATE {
        rows.row(point, || {
            let server = failing(&format!("{point}=error"));
            let reply = quickly("an answer", SOON, || {
                server.http().post("/v1/sandboxes", &json!({"id": "one"}))
            });
            if reply.status < 300 {
                server.named("one").delete();
            } else {
                assert!(reply.status >= 500 && !reply.error().is_empty(), "{}", reply.text());
            }
            // A create that was answered with an error may exist, if complete; a retry with its key
            // would find it.
            wait_until("the sandbox is complete or gone", SOON, || {
                let seen = server.http().get("/v1/sandboxes/one");
                if seen.json()["state"] == "running" {
                    server.named("one").delete();
                }
                (seen.status == 404).then_some(())
            });
            server.wait_until_tidy();
        });
    }
}

#[test]
fn f40_a_panic_at_a_step_affects_one_request() {
    let mut rows = Rows::new();
    for point in ["create.recorded", "create.jailed", "create.greeted", "delete.killed"] {
        rows.row(point, || {
            let mut server = failing(&format!("{point}=panic"));
            let http = server.http();
            let reply = http.try_send("POST", "/v1/sandboxes", Some(b"{\"id\":\"one\"}"));
            if point.starts_with("delete") {
                reply.expect("it is made").expect(201);
                let _ = quickly("an answer", SOON, || {
                    http.try_send("DELETE", "/v1/sandboxes/one", None)
                });
            } else if let Ok(reply) = reply {
                assert!(reply.status >= 500, "{}", reply.text());
            }
            assert_eq!(http.get("/health").status, 200, "the server survives");
            assert!(http.get("/v1/sandboxes").status == 200, "no lock is poisoned");
            server.restart();
            wait_until("half-created and half-removed sandboxes are gone", SOON, || {
                let one = server.http().get("/v1/sandboxes/one");
                (one.status == 404 || one.json()["state"] == "running").then_some(())
            });
            server.healthy();
        });
    }
}

/// Promises: F3.
#[test]
fn f3_a_server_killed_during_a_delete_completes_it_after_its_start() {
    let mut rows = Rows::new();
    for point in DELETE {
        rows.row(point, || {
            let mut server = failing(&format!("{point}=abort"));
            let sandbox = server.sandbox_with(&json!({"id": "one"}));
            sandbox.command("s", "sleep 1000 & echo up");
            assert!(server.http().try_send("DELETE", &sandbox.path(""), None).is_err());
            assert!(!server.wait().success());
            server.launch();
            let seen = server.http().get(&sandbox.path(""));
            assert!(seen.status == 404, "it never answers running again: {}", seen.text());
            server.wait_until_tidy();
            server.http().post("/v1/sandboxes", &json!({"id": "one"})).expect(201);
            server.healthy();
        });
    }
}
