//! Certificates of nodes: who may speak as a node.

use isolet_fleet_tests::addresses::PEER_PORT;
use isolet_fleet_tests::{LocalFleet, LocalNode, PeerAuthority};
use isolet_kit::{Http, LONG, SOON, wait_until};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a client with these files of a node (or none) reads from the listener for nodes.
fn ask(node: &LocalNode, files: Option<&Path>) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-tls1_3", "-connect"]);
    client.arg(format!("{}:{PEER_PORT}", node.address));
    if let Some(files) = files {
        client.arg("-cert").arg(files.join("node.pem"));
        client.arg("-key").arg(files.join("node-key.pem"));
    }
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = client.spawn().expect("openssl is there");
    let request = b"GET /v1/sandboxes HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n";
    let mut input = client.stdin.take().expect("piped");
    // A refused handshake closes the connection first.
    let _ = std::io::Write::write_all(&mut input, request);
    let output = client.wait_with_output().expect("it ends");
    drop(input);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Promises: FL12, FW4.
#[test]
fn t14_a_peer_without_a_valid_certificate_gets_no_answer() {
    let fleet = LocalFleet::start();
    let node = fleet.node("b");
    let own = fleet.authority.as_ref().expect("a fleet");
    let valid = ask(node, Some(&own.files_of("a")));
    assert!(valid.starts_with("HTTP/1.1 "), "the probe works: {valid:?}");
    let folder = tempfile::tempdir().expect("a directory");
    let foreign = PeerAuthority::create(folder.path()).issue("a");
    for files in [None, Some(foreign.as_path())] {
        assert_eq!(ask(node, files), "", "{files:?}");
    }
    // Without TLS there is no answer in HTTP either.
    let plain = Http::new(PEER_PORT, None).at(node.address);
    let said = plain.raw(b"GET / HTTP/1.1\r\nhost: node\r\n\r\n", SOON);
    assert!(!said.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&said));
}

/// Promises: FL12.
#[test]
fn a_revoked_node_is_refused_within_a_minute() {
    let fleet = LocalFleet::start();
    for node in ["a", "c"] {
        fleet.create_on(node, node);
    }
    let near = fleet.node("a");
    let revoked = fleet.node("c");
    assert_eq!(near.sandbox("c").says("echo works"), "works\n");
    assert_eq!(revoked.sandbox("a").says("echo works"), "works\n");
    let mut open = near.sandbox("c").session("dev");
    open.run("true").is("", 0);
    let authority = fleet.authority.as_ref().expect("a fleet");
    authority.revoke("c", &["a", "b"]);
    for (node, id) in [(near, "c"), (revoked, "a")] {
        let through = node.sandbox(id);
        let refused = wait_until("the certificate does not work any more", LONG / 2, || {
            let reply = through.http.get(&through.path(""));
            (reply.status != 200).then_some(reply)
        });
        assert_eq!(refused.expect(503).error(), "node_unreachable", "{}", node.name);
    }
    wait_until("an open connection ends too", LONG / 2, || {
        open.next(SOON).filter(|frame| matches!(frame, isolet_kit::Frame::Close(_)))
    });
    // Its own clients still reach its own sandboxes, and the other nodes work.
    assert_eq!(revoked.sandbox("c").says("echo works"), "works\n");
    assert_eq!(fleet.node("b").sandbox("a").says("echo works"), "works\n");
    // A new certificate makes it a node again.
    let files = authority.files_of("c");
    std::fs::remove_dir_all(&files).expect("removed");
    authority.issue("c");
    for (node, id) in [(near, "c"), (revoked, "a")] {
        let through = node.sandbox(id);
        wait_until("the new certificate works", LONG, || {
            (through.http.get(&through.path("")).status == 200).then_some(())
        });
    }
}
