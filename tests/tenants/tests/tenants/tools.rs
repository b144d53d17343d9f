//! The tools of `/mcp` have exactly the rights of the key in each request.

use isolet_kit::{Http, Options, Reply, SOON, Server, Value, json, wait_until};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// The MCP session id that the server assigns on initialization.
fn begin(http: &Http) -> String {
    let reply = greet(http).expect(200);
    reply.header("mcp-session-id").expect("a client has an id").to_owned()
}

fn greet(http: &Http) -> Reply {
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello});
    ask(http).post("/mcp", &body)
}

fn ask(http: &Http) -> Http {
    http.with("accept", "application/json, text/event-stream")
}

/// What a tool returns, and whether it is an error.
fn call(http: &Http, id: &str, name: &str, arguments: &Value) -> (String, bool) {
    let params = json!({"name": name, "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    let reply = ask(http).with("mcp-session-id", id).post("/mcp", &body).expect(200);
    let text = reply.text();
    let data =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).find(|data| data.len() > 1);
    let said: Value = data.unwrap_or(&text).parse().expect("JSON");
    let result = &said["result"];
    let block = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{said}"));
    (block.to_owned(), result["isError"] == true)
}

/// Promises: M2.
#[test]
fn tools_have_the_rights_of_the_key_in_each_request() {
    let mut server = Server::start();
    let own = server.http();
    let sandbox = server.sandbox();
    let id = begin(&own);
    let (listed, refused) = call(&own, &id, "sandbox_list", &json!({}));
    assert!(!refused && listed.contains(&sandbox.id), "{listed}");

    // Another tenant has its own rights and nothing else.
    let other = Http::new(server.port(), Some(&server.add_key(&["--tenant", "other"])));
    let theirs = begin(&other);
    let (listed, refused) = call(&other, &theirs, "sandbox_list", &json!({}));
    assert!(!refused && !listed.contains(&sandbox.id), "{listed}");
    let (said, refused) = call(&other, &theirs, "sandbox_info", &json!({"sandbox": sandbox.id}));
    assert!(refused && said.contains("404"), "{said}");
    let (said, refused) = call(&other, &theirs, "sandbox_delete", &json!({"sandbox": sandbox.id}));
    assert!(refused || own.get(&format!("/v1/sandboxes/{}", sandbox.id)).status == 200, "{said}");

    // A read-only key has only the tools that read.
    let reader = Http::new(server.port(), Some(&server.add_key(&["--read-only"])));
    let (listed, refused) = call(&reader, &id, "sandbox_list", &json!({}));
    assert!(!refused && listed.contains(&sandbox.id), "{listed}");
    let run = json!({"sandbox": sandbox.id, "command": "touch /workspace/was-here"});
    let (said, refused) = call(&reader, &id, "shell_run", &run);
    assert!(refused && said.contains("read_only"), "{said}");
    let (_, refused) =
        call(&own, &id, "file_read", &json!({"sandbox": sandbox.id, "path": "was-here"}));
    assert!(refused, "nothing was run");

    // No request without a key and no page of a foreign origin gets an answer.
    let body = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"});
    ask(&Http::new(server.port(), None))
        .with("mcp-session-id", &id)
        .post("/mcp", &body)
        .expect(401);
    let page = ask(&own).with("mcp-session-id", &id).with("origin", "https://stranger.example");
    page.post("/mcp", &body).expect(403);
}

/// A GET request into a program may have side effects there, so it does not count as reading.
/// Promises: M6.
#[test]
fn a_read_only_key_reaches_no_port_through_a_tool() {
    let mut server = Server::start();
    let own = server.http();
    let sandbox = server.sandbox();
    sandbox.listen(8000);
    let named = |more: Value| {
        let mut all = more;
        all["sandbox"] = json!(sandbox.id);
        all
    };
    let reader = Http::new(server.port(), Some(&server.add_key(&["--read-only"])));
    let other = Http::new(server.port(), Some(&server.add_key(&["--tenant", "other"])));
    let port = named(json!({"port": 8000, "path": "/echo"}));
    let (said, refused) = call(&own, &begin(&own), "port_fetch", &port);
    assert!(!refused && said.contains("/echo"), "{said}");
    let id = begin(&reader);
    for (tool, arguments) in [
        ("port_fetch", port.clone()),
        ("port_link", named(json!({"port": 8000}))),
        ("process_start", named(json!({"command": "touch /tmp/was-here"}))),
    ] {
        let (said, refused) = call(&reader, &id, tool, &arguments);
        assert!(refused && said.contains("read_only"), "{tool}: {said}");
    }
    for tool in ["port_list", "process_list"] {
        let (said, refused) = call(&reader, &id, tool, &named(json!({})));
        assert!(!refused, "{tool}: {said}");
    }
    let theirs = begin(&other);
    for (tool, arguments) in [("port_fetch", port), ("port_list", named(json!({})))] {
        let (said, refused) = call(&other, &theirs, tool, &arguments);
        assert!(refused && said.contains("no_sandbox"), "{tool}: {said}");
    }
}

/// The id of an MCP session once opened it to every tenant, who could replay its messages and end
/// it.
/// Promises: M4.
#[test]
fn an_mcp_client_belongs_to_its_tenant_alone() {
    let mut server = Server::start();
    let own = server.http();
    let id = begin(&own);
    let other = Http::new(server.port(), Some(&server.add_key(&["--tenant", "other"])));
    let other = ask(&other).with("mcp-session-id", &id);
    let list = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"});
    other.post("/mcp", &list).expect(404);
    other.with("last-event-id", "0").get("/mcp").expect(404);
    other.delete("/mcp").expect(404);
    ask(&own).with("mcp-session-id", &id).post("/mcp", &list).expect(200);
}

/// One tenant once occupied all places for an hour, so that no other could start.
/// Promises: M4.
#[test]
fn mcp_clients_of_one_tenant_leave_room_for_others() {
    let mut server = Server::start();
    let own = server.http();
    let ids: Vec<String> = (0..250).map(|_| begin(&own)).collect();
    greet(&own).expect(429);
    let other = Http::new(server.port(), Some(&server.add_key(&["--tenant", "other"])));
    begin(&other);
    ask(&own).with("mcp-session-id", &ids[0]).delete("/mcp").expect(202);
    begin(&own);
    greet(&own).expect(429);
}

/// Promises: T20.
#[test]
fn t19_tools_are_subject_to_the_same_limits() {
    let server = Options::new().config("[connections]\nexecs = 1").start();
    let own = server.http();
    let sandbox = server.sandbox();
    let id = begin(&own);
    let body = json!({"command": "sleep 10000"});
    let held = own.events(&sandbox.path("/exec"), &body);
    let run =
        || call(&own, &id, "shell_run", &json!({"sandbox": sandbox.id, "command": "echo done"}));
    let (said, refused) = run();
    assert!(refused && said.contains("may hold no more"), "{said}");
    drop(held);
    wait_until("the command is gone", SOON, || run().0.contains("done").then_some(()));
}

/// Calls a tool, and reads its answer only until it contains `start`.
fn begin_to_read(http: &Http, id: &str, name: &str, arguments: &Value, start: &str) -> TcpStream {
    let params = json!({"name": name, "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    let body = body.to_string();
    let mut stream = http.connect();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\n\
         mcp-session-id: {id}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        http.port,
        http.key.as_deref().unwrap_or_default(),
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains(start) {
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes).expect("an answer");
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..count]);
    }
    stream
}

/// A tenant's tools answered clients that read nothing, with up to 8 MiB of images each, and the server
/// held as many of these answers as the tenant may have event streams.
///
/// Promises: T27.
#[test]
fn t21_answers_of_tools_that_nobody_reads_hold_at_most_the_tenants_part() {
    let mut server = Options::new().config("[connections]\nanswers_mib = 64").start();
    let greedy = Http::new(server.port(), Some(&server.add_key(&["--tenant", "greedy"])));
    let id = begin(&greedy);
    // Counts 13 MiB: as a value and as text. The tenant's part is 32 MiB.
    let picture =
        "class P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n' + b'x' * (5 << 20)\nP()";
    let picture = json!({"code": picture});
    let unread: Vec<_> =
        (0..2).map(|_| begin_to_read(&greedy, &id, "code_run", &picture, "iVBORw0K")).collect();
    // A MB of output, of which each byte takes six in JSON.
    let output =
        json!({"command": "head -c 1000000 /dev/zero | tr '\\0' '\\1'", "max_bytes": 1 << 20});
    let (said, refused) = call(&greedy, &id, "shell_run", &output);
    assert!(refused && said.contains("have not read yet"), "{}", said.len());
    assert!(said.contains("The request itself was carried out"), "{said}");
    let (said, refused) = call(&greedy, &id, "code_run", &json!({"code": "1 + 1"}));
    assert!(!refused && said.contains('2'), "short answers are sent: {said}");
    let own = server.http();
    let (said, refused) = call(&own, &begin(&own), "code_run", &picture);
    assert!(!refused, "another tenant has its own part: {}", said.len());
    drop(unread);
    wait_until("their memory is free", SOON, || {
        (!call(&greedy, &id, "shell_run", &output).1).then_some(())
    });
}
