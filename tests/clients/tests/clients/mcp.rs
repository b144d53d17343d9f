//! The official client of the Model Context Protocol, unmodified, by both ways.

use crate::place::{checkout, fetched, run};
use isolet_kit::Server;
use std::{fs, process::Command};

fn session(way: &str) {
    let server = Server::start();
    let home = fetched("mcp");
    // Two tests run it at once.
    let here = home.join(format!("session-{way}.mjs"));
    fs::copy(checkout().join("tests/clients/mcp/session.mjs"), &here).expect("copies");
    let mut node = Command::new("node");
    node.arg(&here)
        .env("WAY", way)
        .env("ISOLET_URL", format!("http://127.0.0.1:{}", server.port()))
        .env("ISOLET_API_KEY", server.key())
        .env("ISOLET_PROGRAM", isolet_kit::programs().join("isolet"));
    assert_eq!(run(&mut node).well().out, "all answered\n");
}

#[test]
fn mcp_client_uses_tools_over_standard_input_and_output() {
    session("stdio");
}

#[test]
fn mcp_client_uses_tools_by_http() {
    session("http");
}
