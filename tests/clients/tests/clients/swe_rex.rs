//! SWE-ReX's client from the package `swe-rex`, unmodified.

use crate::programs::{checkout, fetched, run};
use isolet_kit::{Options, Value, json};
use std::process::Command;

/// Promises: D1.
#[test]
fn swe_rex_client_works_with_the_address_of_a_sandbox() {
    let mut server = Options::new().start();
    let other = server.add_key(&["--tenant", "other"]);
    let reader = server.add_key(&["--tenant", "default", "--read-only"]);
    let sandbox = server.sandbox_with(&json!({"id": "agent"}));
    sandbox.post("/sessions", &json!({"id": "native"})).expect(201);
    let home = tempfile::tempdir().expect("a directory");
    let mut python = Command::new(fetched("swe-rex").join("bin/python"));
    python
        .arg(checkout().join("tests/clients/swe-rex/runtime.py"))
        .env("HOME", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SANDBOX", &sandbox.id)
        .env("OTHER_KEY", other)
        .env("READ_KEY", reader)
        .env("ISOLET_URL", format!("http://127.0.0.1:{}", server.port()))
        .env("ISOLET_API_KEY", server.key());
    assert!(run(&mut python).well().err.contains("all answered\n"));
    let left = server.http().get("/v1/sandboxes/agent/sessions").expect(200).json();
    let left: Vec<_> = left.as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert_eq!(left, ["default", "native"], "it closes its own sessions only");
    let events: Vec<_> = server
        .http()
        .get("/v1/audit?sandbox=agent")
        .expect(200)
        .text()
        .lines()
        .filter_map(|line| line.parse::<Value>().ok())
        .filter(|entry| {
            entry["data"]["call"].as_str().is_some_and(|call| call.contains("/v1/swerex/"))
        })
        .filter_map(|entry| entry["event"].as_str().map(str::to_owned))
        .collect();
    for event in ["session.create", "session.delete", "exec.start", "file.write"] {
        assert!(events.iter().any(|one| one == event), "{event}: {events:?}");
    }
}
