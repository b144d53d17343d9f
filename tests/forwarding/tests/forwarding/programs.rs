//! WebSockets of programs behind ports, and tools of the Model Context Protocol.

use crate::cluster::Cluster;
use isolet_kit::{Http, SOON, Value, json, wait_until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// Opens a WebSocket to the program, which then echoes every byte.
fn switch(http: &Http, path: &str) -> (TcpStream, String) {
    let key = http.key.as_deref().expect("a key");
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\n\
         connection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: vite-hmr\r\n\r\n",
        http.port
    );
    let mut stream = http.connect();
    stream.write_all(head.as_bytes()).expect("sent");
    let mut seen = Vec::new();
    while !seen.ends_with(b"host: localhost:8000\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte");
        seen.push(byte[0]);
    }
    (stream, String::from_utf8_lossy(&seen).to_lowercase())
}

/// Promises: FW1.
#[test]
fn a_websocket_of_a_program_passes_unchanged() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.listen(8000);
    let path = sandbox.path("/ports/8000/upgrade");
    let (mut stream, head) = switch(&sandbox.http, &path);
    let switched = head.starts_with("http/1.1 101 ");
    assert!(switched && head.contains("sec-websocket-protocol: vite-hmr"), "{head}");
    assert!(!head.contains("isolet-peer"), "{head}");
    let all: Vec<u8> = (0..3_000_000u32).map(|n| (n % 253) as u8).collect();
    let mut other = stream.try_clone().expect("cloned");
    let sent = all.clone();
    let writer = std::thread::spawn(move || {
        other.write_all(&sent).expect("sent");
        other.shutdown(Shutdown::Write).expect("shut");
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("read");
    writer.join().expect("written");
    assert!(back == all, "{} bytes of {}", back.len(), all.len());
    // The socket keeps the sandbox awake on its owner, until the client has disconnected.
    let (stream, _) = switch(&sandbox.http, &path);
    assert_eq!(sandbox.post("/sleep", &json!({})).expect(409).error(), "sandbox_in_use");
    drop(stream);
    wait_until("it can be put to sleep", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
}

/// Promises: FW1.
#[test]
fn a_tool_is_forwarded_like_the_call_that_it_makes() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.says("echo secret >/workspace/file");
    let accept = "application/json, text/event-stream";
    let http = cluster.node("a").http().with("accept", accept);
    let hello = json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello});
    let begun = http.post("/mcp", &body).expect(200);
    let id = begun.header("mcp-session-id").expect("a client has an id").to_owned();
    let http = http.with("mcp-session-id", &id);
    http.post("/mcp", &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let call = |tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        http.post("/mcp", &body).expect(200).text()
    };
    let listed = call("sandbox_list", json!({}));
    assert!(listed.contains("box"), "{listed}");
    let ran = call("shell_run", json!({"sandbox": "box", "command": "cat /workspace/file"}));
    assert!(ran.contains("secret"), "{ran}");
    http.delete("/mcp");
}
