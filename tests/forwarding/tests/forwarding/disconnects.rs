//! What ends early ends everywhere: clients that disconnect, keys that are revoked, limits.

use crate::cluster::Cluster;
use isolet_http::ConnectionLimits;
use isolet_kit::{Frame, SOON, Sandbox, json, wait_until};

/// How many processes with this argument run in the sandbox.
fn running(sandbox: &Sandbox, mark: &str) -> usize {
    let text = sandbox.says(&format!("pgrep -fc '[s]leep {mark}'"));
    text.trim().parse().unwrap_or(0)
}

/// Promises: FW2.
#[test]
fn a_client_that_disconnects_ends_its_command_on_the_owner() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let body = json!({"argv": ["sleep", "1234"]});
    let stream = sandbox.http.events(&sandbox.path("/exec"), &body);
    wait_until("it runs", SOON, || (running(&sandbox, "1234") == 1).then_some(()));
    drop(stream);
    wait_until("it has ended", SOON, || (running(&sandbox, "1234") == 0).then_some(()));
    // Also while no head of a response has been sent.
    let mut raw = sandbox.http.connect();
    let text = json!({"argv": ["sleep", "4321"]}).to_string();
    let key = sandbox.http.key.as_deref().expect("a key");
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
        sandbox.path("/exec"),
        sandbox.http.port,
        text.len()
    );
    std::io::Write::write_all(&mut raw, request.as_bytes()).expect("sent");
    wait_until("it runs", SOON, || (running(&sandbox, "4321") == 1).then_some(()));
    drop(raw);
    wait_until("it has ended", SOON, || (running(&sandbox, "4321") == 0).then_some(()));
}

/// Promises: FW2.
#[test]
fn a_socket_that_is_cut_is_closed_on_the_owner() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let shell = sandbox.shell();
    let node = cluster.node("b").sandbox("box");
    let refused = node.http.post(&node.path("/sleep"), &json!({}));
    assert_eq!(refused.expect(409).error(), "sandbox_in_use");
    shell.cut();
    wait_until("the sandbox is not in use", SOON, || {
        (node.http.post(&node.path("/sleep"), &json!({})).status == 200).then_some(())
    });
}

/// Promises: FW2.
#[test]
fn a_revoked_key_ends_what_another_node_streams() {
    let cluster = Cluster::start(2);
    let (id, secret) = cluster.add_key("a", "default", false);
    let owner = cluster.sandbox("box");
    let sandbox = Sandbox { id: "box".into(), http: cluster.node("a").client(Some(&secret)) };
    let body = json!({"argv": ["sleep", "1234"]});
    let mut stream = sandbox.http.events(&sandbox.path("/exec"), &body);
    assert_eq!(stream.status, 200);
    let mut shell = sandbox.shell();
    shell.run("echo up").is("up\n", 0);
    wait_until("it runs", SOON, || (running(&owner, "1234") == 1).then_some(()));
    assert!(cluster.node("a").service().keys().revoke(&id).expect("the keys are readable"));
    let mut last = None;
    while let Some(event) = stream.event() {
        last = Some(event);
    }
    let last = last.expect("events");
    assert_eq!(last.name, "error", "{last:?}");
    assert!(last.data.contains("unauthorized"), "{last:?}");
    assert!(matches!(shell.next(SOON), Some(Frame::Close(_))));
    wait_until("it has ended", SOON, || (running(&owner, "1234") == 0).then_some(()));
}

/// Promises: FW4.
#[test]
fn a_permit_is_held_as_long_as_the_response() {
    let limits = ConnectionLimits::of_max(64).with_tenant_max(4);
    let cluster = Cluster::with_limits(2, limits);
    let sandbox = cluster.sandbox("box");
    let open = || {
        let path = sandbox.path("/events");
        sandbox.http.try_open("GET", &path, None).expect("an answer")
    };
    let held = [open(), open()];
    assert!(held.iter().all(|stream| stream.status == 200));
    let refused = sandbox.http.get(&sandbox.path("/events")).expect(429);
    assert_eq!(refused.error(), "too_many_connections");
    drop(held);
    wait_until("the permits are back", SOON, || (open().status == 200).then_some(()));
    // Sockets hold theirs too.
    let first = sandbox.shell();
    let second = sandbox.shell();
    assert_eq!(sandbox.try_open("").map(drop), Err(429));
    first.cut();
    second.cut();
    wait_until("the permits are back", SOON, || sandbox.try_open("").ok().map(drop));
}

/// Promises: FW2, FW3.
#[test]
fn a_node_that_stops_in_the_middle_of_a_response_is_reported() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let body = json!({"command": "echo up; sleep 1234"});
    let mut stream = sandbox.http.events(&sandbox.path("/exec"), &body);
    let mut seen = String::new();
    while !seen.contains("up") {
        seen.push_str(&stream.event().expect("an event").data);
    }
    let path = sandbox.path("/files/big");
    sandbox.says("head -c 50000000 /dev/zero >big");
    let mut download = sandbox.http.try_open("GET", &path, None).expect("an answer");
    cluster.node("b").fleet.cut_off();
    let last = stream.event().expect("the last event");
    assert_eq!(last.name, "error");
    assert!(last.data.contains("node_unreachable"), "{last:?}");
    assert_eq!(stream.event(), None);
    let mut bytes = Vec::new();
    let read = std::io::Read::read_to_end(&mut download.body, &mut bytes);
    assert!(read.is_err() && bytes.len() < 50_000_000, "a cut is no end: {read:?}");
    let owner = cluster.node("b").sandbox("box");
    wait_until("the command has ended", SOON, || (running(&owner, "1234") == 0).then_some(()));
}
