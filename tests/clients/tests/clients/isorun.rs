//! The public Isorun client, unmodified: the examples of its README and documents, and all of its
//! calls.

use crate::programs::{ProgramOutput, checkout, fetched, run};
use isolet_kit::net::{OTHER, PUBLIC, World};
use isolet_kit::{Options, Server};
use std::fs;
use std::process::Command;

/// Runs one of the programs in `tests/clients/isorun` beside the installed client.
fn program(server: &Server, name: &str) -> ProgramOutput {
    let home = fetched("isorun");
    let here = home.join(name);
    let source = checkout().join("tests/clients/isorun").join(name);
    fs::copy(source, &here).expect("copies");
    let mut node = Command::new(home.join("node_modules/.bin/node"));
    node.arg(&here)
        .env("ISORUN_API_URL", format!("http://127.0.0.1:{}", server.port()))
        .env("ISORUN_API_KEY", server.key())
        .env("HOSTS", format!("{PUBLIC} {OTHER}"));
    run(&mut node).well()
}

/// A server with the shipped configuration and one more alias for the host's own image, because the
/// test has no registry.
fn shipped() -> Server {
    shipped_with("")
}

/// Like [`shipped`], with more configuration at the end.
fn shipped_with(more: &str) -> Server {
    let config = fs::read_to_string(checkout().join("config/isolet.toml")).expect("is shipped");
    let name = "[images.aliases]\n\"node:22-slim\" = \"host\"\n";
    assert!(config.ends_with(name), "the file ends with the table of aliases");
    Options::new().config(&format!("{config}\"python:3.12-slim\" = \"host\"\n{more}")).start()
}

#[test]
fn isorun_client_runs_its_quickstart() {
    let server = shipped();
    let said = program(&server, "quickstart.mjs").out;
    assert!(said.starts_with('v') && said.ends_with("\n\n"), "a version and a line end: {said:?}");
    assert!(server.ids(&server.http()).is_empty(), "the sandbox was deleted");
}

#[test]
fn isorun_client_runs_untrusted_code() {
    let server = shipped();
    assert_eq!(program(&server, "untrusted.mjs").out, "5050 True ü\n0\n");
}

/// Promises: D4.
#[test]
fn isorun_client_keeps_a_shell() {
    let server = shipped();
    let said = program(&server, "shell.mjs").out;
    let all = r#"{"exitCode":7,"stdout":"/tmp\n42\nhi you\ntwo\n1\n","stderr":"loud\n"}"#;
    assert_eq!(said, format!("bar\n\n{all}\n3\n"));
}

/// Promises: Q23, D4.
#[test]
fn isorun_client_makes_all_its_calls() {
    let server = shipped();
    assert_eq!(program(&server, "calls.mjs").out, "all answered\n");
}

/// Promises: D4.
#[test]
fn isorun_client_is_confined_to_the_networks_that_it_requests() {
    let _world = World::new();
    let profile = "[network.profiles.web]\ndescription = \"Web servers.\"\nallow = [\"*:80\"]\n";
    let server = shipped_with(profile);
    assert_eq!(program(&server, "network.mjs").out, "all held\n");
    assert!(server.ids(&server.http()).is_empty());
}

/// Promises: D4.
#[test]
fn isorun_mcp_server_works_against_this_one() {
    let server = shipped();
    assert_eq!(program(&server, "mcp.mjs").out, "all answered\n");
    assert!(server.ids(&server.http()).is_empty());
}

/// Promises: D4, SN1.
#[test]
fn isorun_client_copies_its_runs() {
    let server = shipped();
    assert_eq!(program(&server, "snapshots.mjs").out, "all copied\n");
}

/// Promises: D4.
#[test]
fn isorun_client_can_read_why_a_request_is_refused() {
    let server = shipped();
    assert_eq!(program(&server, "refused.mjs").out, "all refused\n");
}
