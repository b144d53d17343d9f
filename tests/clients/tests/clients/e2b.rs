//! E2B's public clients, unmodified: Python (synchronous and asynchronous) and JavaScript.

use crate::programs::{checkout, fetched, run};
use isolet_kit::Server;
use std::fs;
use std::process::Command;

/// Points a client to the server, with a key of its own format.
fn configure(client: &mut Command, server: &mut Server) {
    let key = server.add_key(&["--e2b"]);
    assert!(key.starts_with("e2b_") && key.len() == 44, "{key}");
    let url = format!("http://127.0.0.1:{}", server.port());
    client.env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url).env("E2B_API_KEY", key);
}

/// Promises: D7.
#[test]
fn e2b_python_client_makes_all_its_calls() {
    let mut server = Server::start();
    let home = tempfile::tempdir().expect("a directory");
    let mut python = Command::new(fetched("e2b-python").join("bin/python"));
    python
        .arg(checkout().join("tests/clients/e2b-python/session.py"))
        .env("HOME", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    configure(&mut python, &mut server);
    assert_eq!(run(&mut python).well().out, "all answered\n");
    assert!(server.ids(&server.http()).is_empty(), "it has deleted what it created");
}

/// Promises: D10.
#[test]
fn e2b_interpreter_client_makes_all_its_calls() {
    let mut server = Server::start();
    let home = tempfile::tempdir().expect("a directory");
    let mut python = Command::new(fetched("e2b-interpreter").join("bin/python"));
    python
        .arg(checkout().join("tests/clients/e2b-interpreter/session.py"))
        .env("HOME", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    configure(&mut python, &mut server);
    assert_eq!(run(&mut python).well().out, "all answered\n");
    assert!(server.ids(&server.http()).is_empty(), "it has deleted what it created");
}

/// Promises: D7.
#[test]
fn e2b_javascript_client_makes_its_calls() {
    let mut server = Server::start();
    let home = fetched("e2b");
    let here = home.join("session.mjs");
    fs::copy(checkout().join("tests/clients/e2b/session.mjs"), &here).expect("copies");
    let mut node = Command::new(home.join("node_modules/.bin/node"));
    node.arg(&here);
    configure(&mut node, &mut server);
    assert_eq!(run(&mut node).well().out, "all answered\n");
    assert!(server.ids(&server.http()).is_empty(), "it has deleted what it created");
}

/// Promises: D7.
#[test]
fn e2b_python_client_builds_templates() {
    let mut server = Server::start();
    let home = tempfile::tempdir().expect("a directory");
    let mut python = Command::new(fetched("e2b-python").join("bin/python"));
    python
        .arg(checkout().join("tests/clients/e2b-python/templates.py"))
        .env("HOME", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    configure(&mut python, &mut server);
    assert_eq!(run(&mut python).well().out, "all built\n");
}

/// Promises: D7.
#[test]
fn e2b_javascript_client_builds_templates() {
    let mut server = Server::start();
    let home = fetched("e2b");
    let here = home.join("templates.mjs");
    fs::copy(checkout().join("tests/clients/e2b/templates.mjs"), &here).expect("copies");
    let mut node = Command::new(home.join("node_modules/.bin/node"));
    node.arg(&here);
    configure(&mut node, &mut server);
    assert_eq!(run(&mut node).well().out, "all built\n");
}
