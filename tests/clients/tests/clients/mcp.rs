//! The official client of the Model Context Protocol, unmodified, over both transports.

use crate::programs::{checkout, fetched, run};
use isolet_kit::Server;
use std::fs;
use std::process::Command;

fn session(script: &str, transport: &str) {
    run_script(&Server::start(), script, transport);
}

fn run_script(server: &Server, script: &str, transport: &str) {
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

/// A client that left in the middle of a call made the server log an error, and one that left before
/// its first message made `isolet mcp` fail.
fn leaves_without_a_warning(transport: &str) {
    let mut server = Server::start();
    let before = server.log().len();
    run_script(&server, "leaving", transport);
    assert!(server.stop().success());
    let log = server.log().split_off(before);
    let warnings: Vec<_> =
        log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
}

/// Promises: M7.
#[test]
fn an_mcp_client_leaves_without_a_warning_over_standard_input_and_output() {
    leaves_without_a_warning("stdio");
}

/// Promises: M7.
#[test]
fn an_mcp_client_leaves_without_a_warning_by_http() {
    leaves_without_a_warning("http");
}

/// Promises: M8.
#[test]
fn mcp_client_edits_files_and_runs_code_over_standard_input_and_output() {
    session("code", "stdio");
}

/// Promises: M8.
#[test]
fn mcp_client_edits_files_and_runs_code_by_http() {
    session("code", "http");
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
