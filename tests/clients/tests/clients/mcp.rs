//! The official client of the Model Context Protocol, unmodified, over both transports.

use crate::programs::{checkout, fetched, run};
use isolet_kit::Server;
use std::fs;
use std::process::Command;

fn session(script: &str, transport: &str) {
    let server = Server::start();
    // Tests run concurrently, so each has its own directory below the client's packages.
    let here = fetched("mcp").join(format!("{script}-{transport}"));
    fs::create_dir_all(&here).expect("a directory");
    let script = format!("{script}.mjs");
    for file in ["client.mjs", &script] {
        let from = checkout().join("tests/clients/mcp").join(file);
        fs::copy(from, here.join(file)).expect("copies");
    }
    let mut node = Command::new("node");
    node.arg(here.join(script))
        .env("WAY", transport)
        .env("ISOLET_URL", format!("http://127.0.0.1:{}", server.port()))
        .env("ISOLET_API_KEY", server.key())
        .env("ISOLET_PROGRAM", isolet_kit::programs().join("isolet"));
    assert_eq!(run(&mut node).well().out, "all answered\n");
}

/// Promises: M1.
#[test]
fn mcp_client_uses_tools_over_standard_input_and_output() {
    session("session", "stdio");
}

/// Promises: M1.
#[test]
fn mcp_client_uses_tools_by_http() {
    session("session", "http");
}

/// Promises: M5.
#[test]
fn mcp_client_uses_processes_and_ports_over_standard_input_and_output() {
    session("background", "stdio");
}

/// Promises: M5.
#[test]
fn mcp_client_uses_processes_and_ports_by_http() {
    session("background", "http");
}
