//! Ports inside a sandbox, reached below a path: what goes in, what comes back, and what does not.

use isolet_kit::{
    Message, Options, Reply, SOON, Sandbox, Server, Socket, Stream, Value, json, one, quickly,
    wait_until,
};
use std::io::{Read, Write};

fn at(sandbox: &Sandbox, rest: &str) -> String {
    sandbox.path(&format!("/ports/8000{rest}"))
}

fn guest() -> (Server, Sandbox) {
    let (server, sandbox) = one();
    sandbox.listen(8000);
    (server, sandbox)
}

#[track_caller]
fn echo(reply: Reply) -> Value {
    reply.expect(200).json()
}

fn header<'a>(said: &'a Value, name: &str) -> Vec<&'a str> {
    let all = said["headers"].as_array().expect("headers");
    let own = all.iter().filter(|pair| pair[0] == name);
    own.map(|pair| pair[1].as_str().expect("text")).collect()
}

/// Promises: O1.
#[test]
fn every_method_path_and_body_reaches_a_port_as_it_was_sent() {
    let (_server, sandbox) = guest();
    let http = &sandbox.http;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let said = echo(http.send(method, &at(&sandbox, "/echo/a"), Some(b"xyz")));
        assert_eq!((&said["method"], &said["bytes"]), (&json!(method), &json!(3)));
    }
    for method in ["GET", "POST", "OPTIONS", "PURGE"] {
        let reply = http.send(method, &at(&sandbox, "/status/404"), None);
        assert_eq!((reply.status, reply.header("allow")), (404, None), "{method}");
    }
    for path in ["/echo/a%2Fb//c/../d?x=%20&y&ticket=", "/echo/%ff", "/echo?q=a?b/c"] {
        let said = echo(http.get(&at(&sandbox, path)));
        let path = path.strip_suffix("&ticket=").unwrap_or(path);
        assert_eq!(said["path"], path);
    }
    assert_eq!(echo(http.get(&at(&sandbox, "")))["path"], "/", "the port's own address");
    assert_eq!(echo(http.get(&at(&sandbox, "?a=b")))["path"], "/?a=b");
    let head = http.try_open("HEAD", &at(&sandbox, "/bytes/1234"), None).expect("an answer");
    assert!(head.headers.contains(&("content-length".to_owned(), "1234".to_owned())));
    for status in [200, 201, 204, 304, 404, 401, 418, 500, 503] {
        let reply = http.get(&at(&sandbox, &format!("/status/{status}")));
        assert_eq!((reply.status, reply.header("x-own")), (status, Some("kept")));
    }
    assert_eq!(http.get(&at(&sandbox, "/continue")).expect(200).text(), "after hints\n");
}

/// Promises: O1.
#[test]
fn a_run_is_reached_by_its_own_address_too() {
    let server = Options::new().config("[images.aliases]\n\"node:22-slim\" = \"host\"\n").start();
    let made = server.http().post("/v1/runs", &json!({"timeout": 300})).json();
    let sandbox = server.named(made["id"].as_str().expect("a run"));
    sandbox.listen_at(3000, "::1");
    let said = echo(server.http().get(&format!("/v1/runs/{}/proxy/3000/echo?x=1", sandbox.id)));
    assert_eq!(said["path"], "/echo?x=1");
    let gone = server.http().get("/v1/runs/never/proxy/3000/").expect(404);
    assert_eq!(gone.error(), "no_sandbox");
}

/// Promises: O2.
#[test]
fn large_bodies_stream_in_both_directions() {
    let (_server, sandbox) = guest();
    let body: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    let said = echo(sandbox.http.send("POST", &at(&sandbox, "/echo"), Some(&body)));
    assert_eq!(said["bytes"], body.len());
    let here = sandbox.says("python3 -c 'import hashlib; print(hashlib.sha256(bytes(n % 251 for n in range(20000000))).hexdigest(), end=\"\")'");
    assert_eq!(said["sha256"], here.as_str());
    let reply = sandbox.http.get(&at(&sandbox, "/bytes/50000000")).expect(200);
    assert_eq!(reply.body.len(), 50_000_000);
    assert!(reply.body.iter().enumerate().all(|(at, byte)| *byte == (at % 65536 % 256) as u8));
    // A chunked body is forwarded in chunks, and a refusal may arrive before the body was read.
    let chunked = format!(
        "POST {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",
        at(&sandbox, "/echo"),
        sandbox.http.port,
        sandbox.http.key.as_deref().expect("a key")
    );
    let answer = sandbox.http.raw(chunked.as_bytes(), SOON);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("\"bytes\": 7"), "{answer}");
    let early = sandbox.http.send("POST", &at(&sandbox, "/early"), Some(&body[..1_000_000]));
    assert_eq!((early.status, early.text().as_str()), (413, "too much\n"));
    let raw = sandbox.http.with("te", "trailers").raw(
        format!("GET {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\nte: trailers\r\nconnection: te, close\r\n\r\n",
            at(&sandbox, "/chunks"), sandbox.http.port, sandbox.http.key.as_deref().expect("a key")).as_bytes(), SOON);
    let raw = String::from_utf8_lossy(&raw);
    assert!(raw.contains("one,") && raw.contains("two") && raw.contains("x-sum: 7"), "{raw}");
}

/// Promises: O2.
#[test]
fn a_server_sent_event_arrives_when_it_is_sent() {
    let (_server, sandbox) = guest();
    let mut events =
        sandbox.http.try_open("GET", &at(&sandbox, "/events"), None).expect("an answer");
    assert_eq!(events.event().expect("an event").data, "first");
    sandbox.says("touch /tmp/go");
    assert_eq!(events.event().expect("an event").data, "second");
    assert_eq!(events.event(), None);
}

/// Promises: O3.
#[test]
fn a_program_sees_localhost_and_nothing_of_the_server() {
    let (server, sandbox) = guest();
    let host = format!("127.0.0.1:{}", server.port());
    let http = sandbox
        .http
        .with("cookie", "a=b")
        .with("x-own", "kept")
        .with("referer", "http://x/")
        .with("origin", &format!("http://{host}"))
        .with("x-forwarded-for", "192.0.2.1")
        .with("connection", "x-drop")
        .with("x-drop", "1")
        .with("keep-alive", "3")
        .with("proxy-authorization", "Basic x")
        .with("forwarded", "for=1.2.3.4")
        .with("upgrade", "h2c");
    let said = echo(http.get(&at(&sandbox, "/echo")));
    let all = said.to_string();
    assert!(!all.contains(server.key()), "{all}");
    for gone in [
        "authorization",
        "cookie",
        "referer",
        "x-drop",
        "keep-alive",
        "proxy-authorization",
        "forwarded",
        "upgrade",
        "connection",
    ] {
        assert!(header(&said, gone).is_empty(), "{gone}: {all}");
    }
    assert_eq!(header(&said, "host"), ["localhost:8000"]);
    assert_eq!(header(&said, "origin"), ["http://localhost:8000"]);
    assert_eq!(header(&said, "x-own"), ["kept"]);
    assert_eq!(header(&said, "x-forwarded-for"), ["192.0.2.1, 127.0.0.1"]);
    assert_eq!(header(&said, "x-forwarded-host"), [host.as_str()]);
    assert_eq!(header(&said, "x-forwarded-proto"), ["http"]);
    assert_eq!(header(&said, "x-forwarded-prefix"), [at(&sandbox, "").as_str()]);
}

/// Promises: O4.
#[test]
fn t9_a_program_page_has_no_privileges_under_the_servers_origin() {
    let (_server, sandbox) = guest();
    let asked = "/headers?set-cookie=a%3Db&set-cookie=c%3Dd&strict-transport-security=max-age%3D9\
        &service-worker-allowed=%2F&clear-site-data=%22*%22&content-type=text%2Fhtml&alt-svc=x\
        &content-security-policy=default-src%20*&connection=x-hop&x-hop=1&x-own=kept";
    let reply = sandbox.http.get(&at(&sandbox, asked)).expect(200);
    for gone in [
        "set-cookie",
        "strict-transport-security",
        "service-worker-allowed",
        "clear-site-data",
        "alt-svc",
        "x-hop",
    ] {
        assert_eq!(reply.header(gone), None, "{gone}");
    }
    assert_eq!(reply.header("x-own"), Some("kept"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    let policies: Vec<_> =
        reply.headers.iter().filter(|(name, _)| name == "content-security-policy").collect();
    assert_eq!(policies.len(), 2, "{policies:?}");
    assert!(policies[1].1.starts_with("sandbox ") && !policies[1].1.contains("same-origin"));
}

/// Promises: O5.
#[test]
fn t8_no_redirect_is_followed_and_local_ones_are_rewritten() {
    let (_server, sandbox) = guest();
    let prefix = at(&sandbox, "");
    for (to, wanted) in [
        ("http://169.254.169.254/latest", "http://169.254.169.254/latest".to_owned()),
        ("//evil.example/x", "//evil.example/x".to_owned()),
        ("http://localhost:8001/x", "http://localhost:8001/x".to_owned()),
        ("http://localhost:80000/x", "http://localhost:80000/x".to_owned()),
        ("/next?a=b", format!("{prefix}/next?a=b")),
        ("next", "next".to_owned()),
        ("../../../../v1/sandboxes/other", format!("{prefix}/v1/sandboxes/other")),
        ("/../../../other", format!("{prefix}/other")),
        ("http://localhost:8000", format!("{prefix}/")),
        ("http://127.0.0.1:8000/a", format!("{prefix}/a")),
    ] {
        let reply = sandbox
            .http
            .get(&at(&sandbox, &format!("/redirect?to={to}").replace('&', "%26")))
            .expect(302);
        assert_eq!(reply.header("location"), Some(wanted.as_str()), "{to}");
    }
}

/// Promises: O6.
#[test]
fn an_answer_without_a_listener_names_the_listening_ports() {
    let (_server, sandbox) = guest();
    let refused = sandbox.http.get(&sandbox.path("/ports/9/x")).expect(502);
    assert_eq!(refused.error(), "not_listening");
    let message = refused.json()["message"].to_string();
    assert!(message.contains("port 9") && message.contains("8000"), "{message}");
    for bad in ["0", "65536", "-1", "x", "08000", "%38000x"] {
        assert_eq!(
            sandbox.http.get(&sandbox.path(&format!("/ports/{bad}/x"))).status,
            400,
            "{bad}"
        );
    }
    assert_eq!(sandbox.http.get("/v1/sandboxes/never/ports/80/").expect(404).error(), "no_sandbox");
    sandbox.post("/sleep", &Value::Null).expect(200);
    assert_eq!(sandbox.http.get(&at(&sandbox, "/")).expect(409).error(), "sandbox_sleeping");
    assert_eq!(sandbox.http.get(&sandbox.path("/ports")).expect(200).json(), json!([]));
    assert_eq!(sandbox.info()["state"], "sleeping", "nothing was woken");
}

/// Promises: O7.
#[test]
fn listening_ports_are_detected_automatically() {
    let (_server, sandbox) = guest();
    sandbox.listen_at(8001, "0.0.0.0");
    sandbox.listen_at(8002, "::1");
    let all = sandbox.http.get(&sandbox.path("/ports")).expect(200).json();
    let said: Vec<_> = all
        .as_array()
        .expect("ports")
        .iter()
        .map(|one| {
            (one["port"].as_u64().expect("a port"), one["addresses"][0].as_str().expect("one"))
        })
        .collect();
    assert_eq!(said, [(8000, "127.0.0.1"), (8001, "0.0.0.0"), (8002, "::1")]);
    assert_eq!(all[1]["path"], sandbox.path("/ports/8001/"));
    for port in [8001, 8002] {
        echo(sandbox.http.get(&sandbox.path(&format!("/ports/{port}/echo"))));
    }
}

fn upgrade(sandbox: &Sandbox, path: &str, more: &str) -> Stream {
    let http = ["connection", "upgrade", "sec-websocket-version", "sec-websocket-key"]
        .iter()
        .zip(["Upgrade", "websocket", "13", "dGhlIHNhbXBsZSBub25jZQ=="])
        .fold(sandbox.http.clone(), |http, (name, value)| http.with(name, value));
    let http = if more.is_empty() { http } else { http.with("sec-websocket-protocol", more) };
    http.try_open("GET", path, None).expect("an answer")
}

/// Promises: O2.
#[test]
fn a_websocket_is_passed_through_unchanged() {
    let (_server, sandbox) = guest();
    let path = at(&sandbox, "/upgrade");
    let open = |protocol: &str| {
        let key = sandbox.http.key.as_deref().expect("a key");
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {key}\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: {protocol}\r\n\r\n",
            sandbox.http.port
        );
        let mut stream = sandbox.http.connect();
        stream.write_all(head.as_bytes()).expect("sent");
        let mut seen = Vec::new();
        let wanted: &[u8] = b"host: localhost:8000\n";
        while !seen.ends_with(wanted) {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a byte");
            seen.push(byte[0]);
        }
        (stream, String::from_utf8_lossy(&seen).to_lowercase())
    };
    let (mut stream, head) = open("vite-hmr");
    assert!(
        head.starts_with("http/1.1 101 ") && head.contains("sec-websocket-protocol: vite-hmr"),
        "{head}"
    );
    let all: Vec<u8> = (0..3_000_000u32).map(|n| (n % 253) as u8).collect();
    let mut other = stream.try_clone().expect("cloned");
    let sent = all.clone();
    let writer = std::thread::spawn(move || {
        other.write_all(&sent).expect("sent");
        other.shutdown(std::net::Shutdown::Write).expect("shut");
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("read");
    writer.join().expect("written");
    assert!(back == all, "{} bytes of {}", back.len(), all.len());
    // A refused upgrade is an answer like any other.
    let refused = upgrade(&sandbox, &at(&sandbox, "/status/404"), "");
    assert_eq!(refused.status, 404);
    let (stream, _) = open("x");
    assert_eq!(sandbox.post("/sleep", &Value::Null).expect(409).error(), "sandbox_in_use");
    drop(stream);
    wait_until("it can be put to sleep", SOON, || {
        (sandbox.post("/sleep", &Value::Null).status == 200).then_some(())
    });
}

/// Promises: O8.
#[test]
fn connections_are_reused_and_a_stale_one_causes_no_error() {
    let (_server, sandbox) = guest();
    let peers: Vec<Value> =
        (0..10).map(|_| echo(sandbox.http.get(&at(&sandbox, "/echo")))["peer"].clone()).collect();
    // A request that follows at once may come before the connection of the last one is free.
    let reused = (1..peers.len()).filter(|at| peers[..*at].contains(&peers[*at])).count();
    assert!(reused >= 5, "{peers:?}");
    // The program is replaced by another, so the idle connection leads to a process that is gone.
    sandbox.says("pkill -f [g]uest.py; while pgrep -f [g]uest.py; do sleep 0.02; done");
    // A process that ends loses its name a moment before its sockets.
    wait_until("nothing listens", SOON, || {
        let all = sandbox.http.get(&sandbox.path("/ports")).expect(200).json();
        all.as_array()?.is_empty().then_some(())
    });
    assert_eq!(sandbox.http.get(&at(&sandbox, "/echo")).expect(502).error(), "not_listening");
    sandbox.listen(8000);
    echo(sandbox.http.get(&at(&sandbox, "/echo")));
    // This program closes the connection after each answer.
    sandbox.answers(8003, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    for _ in 0..20 {
        let reply = sandbox.http.send("POST", &sandbox.path("/ports/8003/"), Some(b"x"));
        assert_eq!(reply.expect(200).text(), "ok");
    }
}

/// Promises: O8.
#[test]
fn the_end_of_a_sandbox_or_its_client_ends_the_stream() {
    let (_server, sandbox) = guest();
    let mut endless =
        sandbox.http.try_open("GET", &at(&sandbox, "/endless"), None).expect("an answer");
    endless.body.read_exact(&mut [0; 10]).expect("bytes");
    let waiting = sandbox.clone();
    let never =
        std::thread::spawn(move || waiting.http.try_send("GET", &at(&waiting, "/never"), None));
    wait_until("it was asked", SOON, || (sandbox.says("cat /tmp/asked") == "x").then_some(()));
    let mut left = sandbox.http.connect();
    let head = format!(
        "GET {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\n\r\n",
        at(&sandbox, "/endless"),
        sandbox.http.port,
        sandbox.http.key.as_deref().expect("a key")
    );
    left.write_all(head.as_bytes()).expect("sent");
    left.read_exact(&mut [0; 200]).expect("bytes");
    let open = |sandbox: &Sandbox| sandbox.says("grep -c ' 01 ' /proc/net/tcp");
    let before = open(&sandbox);
    drop(left);
    wait_until("its connection closes", SOON, || (open(&sandbox) != before).then_some(()));
    sandbox.delete();
    quickly("both end", SOON, || {
        let mut rest = Vec::new();
        let _ = endless.body.read_to_end(&mut rest);
        let ended = never.join().expect("joined");
        assert!(ended.map_or(true, |reply| reply.error() == "sandbox_destroyed"));
    });
}

/// Promises: O12.
#[test]
fn tcp_runs_over_a_websocket_until_both_sides_end() {
    let (_server, sandbox) = guest();
    let open = |query: &str| sandbox.socket(&format!("/tcp/8000{query}"));
    let ask = |socket: &mut Socket, text: &str| {
        socket.send(Message::binary(text.as_bytes().to_vec())).expect("sent");
    };
    let mut socket = open("").expect("a socket");
    ask(&mut socket, "GET /bytes/300000 HTTP/1.0\r\n\r\n");
    let mut seen = Vec::new();
    let mut closed = None;
    while let Ok(message) = socket.read() {
        match message {
            Message::Binary(bytes) => seen.extend_from_slice(&bytes),
            Message::Close(frame) => closed = frame.map(|frame| u16::from(frame.code)),
            _ => {}
        }
    }
    let head = seen.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    assert_eq!((seen.len() - head, closed), (300_000, Some(1000)));
    // Each side's end reaches the other side, which may continue to send.
    sandbox.says("cat >/workspace/late.py <<'E'\nimport socket\ns = socket.create_server((\"127.0.0.1\", 8010))\nwhile True:\n    c, _ = s.accept()\n    c.sendall(b\"first\")\n    c.shutdown(socket.SHUT_WR)\n    got = b\"\"\n    while piece := c.recv(65536): got += piece\n    open(\"/tmp/got\", \"wb\").write(got)\n    c.close()\nE");
    sandbox.background("exec python3 /workspace/late.py");
    sandbox.await_port(8010);
    let mut socket = sandbox.socket("/tcp/8010?half=1").expect("a socket");
    let mut text = || loop {
        match socket.read().expect("a message") {
            Message::Binary(bytes) => break String::from_utf8_lossy(&bytes).into_owned(),
            Message::Text(text) => break text.to_string(),
            Message::Close(frame) => {
                break format!("{:?}", frame.map(|frame| u16::from(frame.code)));
            }
            _ => {}
        }
    };
    assert_eq!((text().as_str(), text().as_str()), ("first", r#"{"type":"eof"}"#));
    ask(&mut socket, "after your end");
    socket.send(Message::text(r#"{"type":"eof"}"#)).expect("sent");
    wait_until("it is there", SOON, || {
        (sandbox.says("cat /tmp/got") == "after your end").then_some(())
    });
    let status = |rest: &str| sandbox.socket(rest).map(drop);
    assert_eq!(status("/tcp/9"), Err(502));
    assert_eq!(status("/tcp/0"), Err(400));
    assert_eq!(status("/tcp/8000?nope=1"), Err(400));
    let mut odd = open("").expect("a socket");
    odd.send(Message::text("hello")).expect("sent");
    assert!(matches!(odd.read(), Ok(Message::Close(Some(frame))) if u16::from(frame.code) == 1003));
}

/// Promises: O12.
#[test]
fn a_ticket_opens_one_port_once() {
    let (server, sandbox) = guest();
    sandbox.listen(8001);
    let ticket = || {
        let spec = json!({"sandbox": sandbox.id, "use": "port", "port": 8000});
        let made = server.http().post("/v1/tickets", &spec).expect(201).json();
        made["ticket"].as_str().expect("a ticket").to_owned()
    };
    let keyless =
        Sandbox { id: sandbox.id.clone(), http: isolet_kit::Http::new(server.port(), None) };
    let open =
        |path: &str, ticket: &str| keyless.socket(&format!("{path}?ticket={ticket}")).map(drop);
    let one = ticket();
    assert_eq!(open("/tcp/8000", &one), Ok(()));
    assert_eq!(open("/tcp/8000", &one), Err(401), "used");
    assert_eq!(open("/tcp/8001", &ticket()), Err(401), "another port");
    assert_eq!(open("/terminal", &ticket()), Err(401));
    assert_eq!(
        keyless.http.get(&at(&sandbox, &format!("/echo?ticket={}", ticket()))).status,
        401,
        "no socket"
    );
    for bad in [
        json!({"sandbox": "a", "use": "port"}),
        json!({"sandbox": "a", "use": "port", "port": 0}),
        json!({"sandbox": "a", "use": "shell", "port": 80}),
        json!({"sandbox": "a", "use": "port", "port": 80, "session": "s"}),
        json!({"sandbox": "a", "use": "port", "port": 80, "mode": "view"}),
    ] {
        assert_eq!(server.http().post("/v1/tickets", &bad).status, 400, "{bad}");
    }
}

/// Promises: O13.
#[test]
fn followers_are_notified_when_ports_open_and_close() {
    let (server, sandbox) = one();
    let follow = |path: &str| server.http().try_open("GET", path, None).expect("an answer");
    let mut one = follow(&sandbox.path("/events"));
    let mut all = follow("/v1/events");
    sandbox.listen(8000);
    let next = |stream: &mut Stream, name: &str| loop {
        let event = stream.event().expect("an event");
        if event.name.starts_with("port_") {
            assert_eq!(event.name, name);
            let data: Value = event.data.parse().expect("JSON");
            break data["port"].as_u64().expect("a port");
        }
    };
    assert_eq!((next(&mut one, "port_opened"), next(&mut all, "port_opened")), (8000, 8000));
    sandbox.background("exec python3 -m http.server --bind :: 8001");
    assert_eq!(next(&mut one, "port_opened"), 8001);
    sandbox.says("pkill -f [g]uest.py");
    assert_eq!(next(&mut one, "port_closed"), 8000);
    // Sleep ends what listened; following keeps no sandbox awake.
    sandbox.post("/sleep", &Value::Null).expect(200);
    assert_eq!(next(&mut one, "port_closed"), 8001);
}

/// Promises: O12.
#[test]
fn forward_maps_a_port_of_a_sandbox_to_a_local_port() {
    use std::io::BufRead as _;
    let (server, sandbox) = guest();
    let mut program = server.program();
    program.args(["forward", &sandbox.id, "0:8000", "0:9"]).stderr(std::process::Stdio::piped());
    let mut child = program.spawn().expect("it starts");
    let mut said = std::io::BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut line = || said.next().expect("a line").expect("text");
    let port = |line: &str| {
        let at = line.split("127.0.0.1:").nth(1).expect("an address");
        at.split(' ').next().and_then(|port| port.parse::<u16>().ok()).expect("a port")
    };
    let lines = [line(), line()];
    let of = |remote: &str| port(lines.iter().find(|line| line.contains(remote)).expect("said"));
    let here = isolet_kit::Http::new(of("port 8000"), None);
    let body = vec![b'x'; 3_000_000];
    let said = echo(here.send("POST", "/echo/forwarded", Some(&body)));
    assert_eq!((&said["path"], &said["bytes"]), (&json!("/echo/forwarded"), &json!(body.len())));
    assert_eq!(here.get("/bytes/5000000").body.len(), 5_000_000);
    let none = isolet_kit::Http::new(of("port 9 "), None);
    assert!(none.try_send("GET", "/", None).is_err());
    let refused = line();
    assert!(refused.contains("port 9") && refused.contains("listens"), "{refused}");
    child.kill().expect("ended");
    child.wait().expect("reaped");
    let never = server.command(&["forward", "never", "80"]);
    assert!(!never.status.success());
}
