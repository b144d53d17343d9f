//! Every protocol of the API, spoken with a node that does not own the sandbox.

use crate::cluster::Cluster;
use isolet_kit::{Frame, Message, SOON, Shell, Start, json, wait_until};
use isolet_sandbox::TenantId;

/// Promises: FW1.
#[test]
fn calls_files_and_commands_reach_the_owner() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let http = &sandbox.http;
    assert_eq!(sandbox.says("echo $((6 * 7))"), "42\n");
    assert_eq!(sandbox.command("dev", "cd /tmp; pwd")["stdout"], "/tmp\n");
    assert_eq!(sandbox.command("dev", "pwd")["stdout"], "/tmp\n", "the session stays");
    let path = sandbox.path("/files/a%20b.txt");
    let saved = http.send("PUT", &path, Some(b"text"));
    assert!(matches!(saved.status, 200..=204), "{}", saved.text());
    let read = http.get(&path).expect(200);
    assert_eq!(read.body, b"text");
    let etag = read.header("etag").expect("an etag").to_owned();
    let unchanged = http.with("if-none-match", &etag).send("GET", &path, None);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let part = http.with("range", "bytes=1-2").get(&path).expect(206);
    assert_eq!(part.body, b"ex");
    let mut infos = ["a", "b"].map(|node| cluster.node(node).sandbox("box").info());
    infos.iter_mut().for_each(|info| info["usage"] = json!(null));
    assert_eq!(infos[0], infos[1]);
    let patched = http.patch(&sandbox.path(""), &json!({"metadata": {"a": 1}})).expect(200).json();
    assert_eq!(patched["metadata"], json!({"a": 1}));
    let held = |node| cluster.node(node).service().quota(&TenantId::default_tenant()).0;
    assert_eq!((held("a"), held("b")), (0, 1));
    sandbox.delete();
    assert_eq!(http.get(&sandbox.path("")).expect(404).error(), "no_sandbox");
}

/// Promises: FW6.
#[test]
fn the_first_call_creates_the_sandbox_on_the_node_that_placement_chooses() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.node("a").sandbox("first");
    assert_eq!(sandbox.http.get(&sandbox.path("")).expect(404).error(), "no_sandbox");
    assert_eq!(cluster.directory.owner("default", "first"), None, "a look creates nothing");
    assert_eq!(sandbox.says("echo made"), "made\n");
    assert_eq!(cluster.directory.owner("default", "first").as_deref(), Some("b"));
    // Without an id in the body, the node that receives the request generates one.
    let made = sandbox.http.post("/v1/sandboxes", &json!({})).expect(201);
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(made.header("location"), Some(format!("/v1/sandboxes/{id}").as_str()));
    assert_eq!(cluster.directory.owner("default", &id).as_deref(), Some("b"));
    // The bridge creates its ids in another form.
    let made = sandbox.http.post("/v1/sandbox", &json!({})).expect(200).json();
    let id = made["id"].as_str().expect("an id");
    assert_eq!(cluster.directory.owner("default", id).as_deref(), Some("b"));
    let running = sandbox.http.get(&format!("/v1/sandbox/{id}/running")).expect(200).json();
    assert_eq!(running["running"], true);
    // After a create that fails, its owner gives up what does not exist.
    let settled = || cluster.node("b").fleet.settled().len();
    let before = settled();
    let refused = sandbox.http.post("/v1/sandboxes", &json!({"image": "no/../image"}));
    assert!(refused.status >= 400, "{}", refused.text());
    assert_eq!(settled(), before + 1);
}

/// Promises: FW6.
#[test]
fn a_full_fleet_says_what_is_missing_and_when_to_retry() {
    let cluster = Cluster::start(2);
    let http = cluster.node("a").http();
    let refused = http.post("/v1/sandboxes", &json!({"memory_mib": 4095})).expect(503);
    assert_eq!(
        (refused.error().as_str(), refused.header("retry-after")),
        ("fleet_full", Some("17"))
    );
    assert!(refused.text().contains("4095 MiB of memory"), "{}", refused.text());
}

/// Promises: FW1.
#[test]
fn events_of_a_command_stream() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let body = json!({"command": "echo one; until [ -e /tmp/go ]; do sleep 0.05; done; echo two"});
    let mut stream = sandbox.http.events(&sandbox.path("/exec"), &body);
    assert_eq!(stream.status, 200);
    let mut text = String::new();
    while !text.contains("one") {
        text.push_str(&stream.event().expect("an event").data);
    }
    assert!(!text.contains("two"), "{text}");
    sandbox.says("touch /tmp/go");
    while let Some(event) = stream.event() {
        text.push_str(&event.data);
    }
    assert!(text.contains("two"), "{text}");
    let mut events = sandbox
        .http
        .with("accept", "text/event-stream")
        .try_open("GET", &sandbox.path("/events"), None)
        .expect("an answer");
    sandbox.delete();
    let mut names = Vec::new();
    while let Some(event) = events.event() {
        names.push(event.name);
    }
    assert_eq!(names.last().map(String::as_str), Some("destroyed"), "{names:?}");
}

/// Promises: FW1.
#[test]
fn a_shell_is_resumed_on_another_node() {
    let cluster = Cluster::start(3);
    let sandbox = cluster.sandbox("box");
    let mut shell = sandbox.session("dev");
    shell.run("x=7; cd /tmp").is("", 0);
    let id = shell.id.clone();
    let running = shell.start(Start::new("until [ -e /tmp/go ]; do sleep 0.05; done; echo $x"));
    shell.cut();
    // The client reconnects to a third node.
    let other = cluster.node("c").sandbox("box");
    let mut shell = other.open(&format!("session=dev&resume={id}&since=0,0"));
    other.says("touch /tmp/go");
    let outcome = shell.finish(&running);
    assert_eq!((outcome.text().as_str(), outcome.code), ("7\n", Some(0)));
    shell.run("pwd").is("/tmp\n", 0);
    let mut whole = shell.run("seq 1 200000");
    assert_eq!(whole.out.len(), (1..=200_000).map(|n: u32| n.to_string().len() + 1).sum::<usize>());
    whole.out.clear();
    sandbox.delete();
    assert_eq!(shell.ended()["error"], "sandbox_destroyed");
    assert!(matches!(shell.next(SOON), Some(Frame::Close(1001))));
}

/// Promises: FW1.
#[test]
fn a_terminal_is_typed_into_and_watched_through_other_nodes() {
    let cluster = Cluster::start(3);
    let sandbox = cluster.sandbox("box");
    let mut terminal = sandbox.terminal("");
    terminal.line("PS1='$ '; echo a$((1 + 1))b", "a2b");
    terminal.resize(77, 20);
    terminal.line("stty size", "20 77");
    let mut view = cluster.node("c").sandbox("box").terminal("mode=view");
    terminal.line("echo c$((1 + 1))d", "c2d");
    view.sees("c2d");
    terminal.close();
}

/// Promises: FW1.
#[test]
fn ports_pass_requests_websockets_and_tcp() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.listen(8000);
    let http = &sandbox.http;
    let at = |rest: &str| sandbox.path(&format!("/ports/8000{rest}"));
    let program = http.with("cookie", "a=b").with("referer", "http://x/").with("te", "trailers");
    let said = program.send("PURGE", &at("/echo/a%2Fb//c?x=%20"), Some(b"xyz")).expect(200).json();
    assert_eq!((&said["path"], &said["bytes"]), (&json!("/echo/a%2Fb//c?x=%20"), &json!(3)));
    let headers = said["headers"].to_string();
    for absent in ["isolet-peer", "authorization", "cookie", "referer"] {
        assert!(!headers.contains(absent), "{absent}: {headers}");
    }
    let value = |name: &str| {
        let all = said["headers"].as_array().expect("headers").iter();
        all.filter(|pair| pair[0] == name).map(|pair| pair[1].clone()).collect::<Vec<_>>()
    };
    assert_eq!(value("x-forwarded-for"), [json!("127.0.0.1")]);
    assert_eq!(value("x-forwarded-host"), [json!(format!("127.0.0.1:{}", http.port))]);
    // A program cannot pass as a node.
    let forged = http.get(&at("/headers?isolet-peer-answer=not-owner")).expect(200);
    assert_eq!((forged.text().as_str(), forged.header("isolet-peer-answer")), ("<p>here", None));
    let missing = http.get(&at("/status/404")).expect(404);
    assert_eq!((missing.text().as_str(), missing.header("x-own")), ("so\n", Some("kept")));
    let early = http.send("POST", &at("/early"), Some(&vec![7; 3_000_000])).expect(413);
    assert_eq!(early.text(), "too much\n");
    let silent = http.get(&sandbox.path("/ports/9/x")).expect(502);
    assert_eq!(silent.error(), "not_listening");
    let mut socket = sandbox.socket("/tcp/8000").expect("a socket");
    socket.send(Message::binary(b"GET /bytes/300000 HTTP/1.0\r\n\r\n".to_vec())).expect("sent");
    let mut count = 0;
    let mut closed = None;
    while let Ok(message) = socket.read() {
        match message {
            Message::Binary(bytes) => count += bytes.len(),
            Message::Close(frame) => closed = frame.map(|frame| u16::from(frame.code)),
            _ => {}
        }
    }
    assert!(count > 300_000 && closed == Some(1000), "{count} {closed:?}");
    assert_eq!(sandbox.socket("/tcp/9").map(drop), Err(502));
    assert_eq!(sandbox.socket("/tcp/8000?nope=1").map(drop), Err(400));
    // The events of a program end when it says so.
    let mut events = http.try_open("GET", &at("/events"), None).expect("an answer");
    assert_eq!(events.event().expect("an event").data, "first");
    sandbox.says("touch /tmp/go");
    assert_eq!(events.event().expect("an event").data, "second");
    assert_eq!(events.event(), None);
}

/// Promises: FW1.
#[test]
fn errors_of_the_owner_are_unchanged() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let near = cluster.node("b").http().with("x-request-id", "one-id");
    let far = cluster.node("a").http().with("x-request-id", "one-id");
    for (method, path, body) in [
        ("GET", "/v1/sandboxes/box/files/missing", None),
        ("POST", "/v1/sandboxes/box/exec", Some(&b"{\"nope\":1}"[..])),
        ("POST", "/v1/sandboxes/box/exec", Some(b"{")),
        ("DELETE", "/v1/sandboxes/box/sessions/default", None),
        ("GET", "/v1/sandboxes/box/shell", None),
        ("GET", "/v1/sandboxes/box/processes/none", None),
        ("PATCH", "/v1/sandboxes/box", Some(b"{\"memory_mib\":0}")),
        ("GET", "/v1/sandbox/box2/file/x", None),
        ("GET", "/v1/sandboxes/%2e%2e", None),
    ] {
        let one = near.send(method, path, body);
        let two = far.send(method, path, body);
        assert_eq!((one.status, one.text()), (two.status, two.text()), "{method} {path}");
        assert_eq!(two.header("x-request-id"), Some("one-id"), "{method} {path}");
        let kinds = |reply: &isolet_kit::Reply| {
            let header = |name| reply.header(name).map(str::to_owned);
            ["content-type", "x-content-type-options", "isolet-peer-answer"].map(header)
        };
        assert_eq!(kinds(&one), kinds(&two), "{method} {path}");
    }
    drop(sandbox);
}

/// Promises: FW6.
#[test]
fn a_known_sandbox_costs_no_look_at_the_records() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.says("true");
    let reads = || cluster.directory.reads.load(std::sync::atomic::Ordering::SeqCst);
    let before = reads();
    for _ in 0..20 {
        sandbox.says("true");
        cluster.node("b").sandbox("box").says("true");
    }
    let shell: Shell = sandbox.shell();
    shell.close();
    assert_eq!(reads(), before);
}

/// Promises: FW1, FW6.
#[test]
fn sessions_and_snapshots_are_found_on_every_node() {
    let cluster = Cluster::start(3);
    let made = cluster.node("a").http().post("/v1/sessions", &json!({})).expect(201).json();
    assert_eq!(made["sandbox_id"], "default");
    assert_eq!(cluster.directory.owner("default", "default").as_deref(), Some("b"));
    let id = made["id"].as_str().expect("an id");
    let c = cluster.node("c").http();
    let ran = c.post(&format!("/v1/sessions/{id}/exec"), &json!({"command": "echo here"}));
    assert_eq!(ran.expect(200).json()["stdout"], "here\n");
    assert_eq!(c.get("/v1/sessions/sess_000000000000").expect(404).error(), "no_session");
    let home = cluster.node("a").sandbox("default");
    home.says("echo saved >/workspace/file");
    let taken = home.post("/snapshots", &json!({"name": "one"})).expect(201).json();
    let snapshot = taken["id"].as_str().expect("an id");
    for name in [snapshot, "one"] {
        let seen = c.get(&format!("/v1/snapshots/{name}")).expect(200).json();
        assert_eq!(seen["id"], taken["id"]);
    }
    let file = c.get("/v1/snapshots/one/files/file").expect(200);
    assert_eq!(file.text(), "saved\n");
    // A sandbox from a snapshot is placed where the snapshot is.
    cluster.directory.place_on("c");
    c.post("/v1/sandboxes", &json!({"id": "two", "snapshot": "one"})).expect(201);
    assert_eq!(cluster.directory.owner("default", "two").as_deref(), Some("b"));
    assert_eq!(cluster.node("a").sandbox("two").says("cat file"), "saved\n");
    // Forks belong to the node of their origin.
    let forks = cluster.node("a").sandbox("two").post("/fork", &json!({"count": 2})).expect(201);
    for fork in forks.json()["forks"].as_array().expect("forks") {
        let id = fork["id"].as_str().expect("an id");
        assert_eq!(cluster.directory.owner("default", id).as_deref(), Some("b"));
        assert_eq!(cluster.node("c").sandbox(id).says("cat file"), "saved\n");
    }
    c.delete("/v1/snapshots/one").expect(200);
    wait_until("it is gone everywhere", SOON, || {
        (c.get("/v1/snapshots/one").status == 404).then_some(())
    });
}

/// Promises: FW5.
#[test]
fn one_idempotency_key_creates_one_sandbox_on_all_nodes() {
    let cluster = Cluster::start(3);
    let made: Vec<_> = ["a", "b", "c", "a"]
        .map(|node| {
            let http = cluster.node(node).http().with("idempotency-key", "once");
            http.post("/v1/sandboxes", &json!({"metadata": {"n": 1}})).expect(201)
        })
        .into();
    let ids: Vec<_> = made.iter().map(|reply| reply.json()["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let replayed = made.iter().filter(|reply| reply.header("idempotency-replayed") == Some("true"));
    assert_eq!(replayed.count(), 3);
    let other = cluster.node("c").http().with("idempotency-key", "once");
    let refused = other.post("/v1/sandboxes", &json!({"metadata": {"n": 2}})).expect(422);
    assert_eq!(refused.error(), "idempotency_mismatch");
}
