//! Cloudflare's public bridge client from the package `openai-agents`, unmodified.

use crate::programs::{checkout, fetched, run};
use isolet_kit::Server;
use std::process::Command;

/// Promises: D1.
#[test]
fn openai_agents_client_works_by_the_bridge() {
    let server = Server::start();
    let home = tempfile::tempdir().expect("a directory");
    let mut python = Command::new(fetched("openai-agents").join("bin/python"));
    python
        .arg(checkout().join("tests/clients/openai-agents/session.py"))
        .env("HOME", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OPENAI_AGENTS_DISABLE_TRACING", "1")
        .env("ISOLET_URL", format!("http://127.0.0.1:{}", server.port()))
        .env("ISOLET_API_KEY", server.key());
    assert_eq!(run(&mut python).well().out, "all answered\n");
    assert!(server.ids(&server.http()).is_empty(), "it has deleted what it created");
}
