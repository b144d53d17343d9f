//! The dialect of E2B without its clients: how a data plane is selected, who may use it, and what is
//! refused.

use isolet_kit::image::{Image, busybox};
use isolet_kit::{Http, Options, Reply, Rows, SOON, Server, Value, json, signed_file, wait_until};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

const DOMAIN: &str = "box.example";
const STREAM: &str = "application/connect+json";
/// Above the limit of a message.
const TOO_LONG: usize = 3 * 1024 * 1024;

/// A sandbox with the access to its data plane.
struct Own {
    id: String,
    token: String,
    /// Sends the access token and selects the data plane by headers.
    plane: Http,
}

impl Own {
    fn create(server: &Server, http: &Http) -> Self {
        let made = http.post("/v2/sandboxes", &json!({"templateID": "base"})).expect(201).json();
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        let id = text("sandboxID");
        let token = text("envdAccessToken");
        let plane = server.client(None).with("x-access-token", &token).with("e2b-sandbox-id", &id);
        let plane = plane.with("e2b-sandbox-port", "49983");
        Self { id, token, plane }
    }

    fn call(&self, method: &str, body: &Value) -> Reply {
        self.plane.post(&format!("/{method}"), body)
    }
}

fn server() -> Server {
    Options::new().config(&format!("ports_domain = \"{DOMAIN}\"\n")).start()
}

/// An envelope of a stream.
fn envelope(flags: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short");
    [&[flags][..], &length.to_be_bytes(), message].concat()
}

/// The error at the end of a stream.
fn end_of_stream(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut rest = &reply.body[..];
    loop {
        let (head, after) = rest.split_at_checked(5).expect("a whole envelope");
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes"));
        let (message, after) = after.split_at(length.try_into().expect("fits"));
        if head[0] == 2 {
            assert!(after.is_empty(), "it is the last envelope");
            return serde_json_value(message);
        }
        rest = after;
    }
}

fn serde_json_value(text: &[u8]) -> Value {
    String::from_utf8_lossy(text).parse().expect("JSON")
}

/// Promises: D8.
#[test]
fn headers_or_a_host_name_select_the_data_plane_and_never_the_path() {
    let server = server();
    let http = server.http();
    let own = Own::create(&server, &http);
    assert_eq!(own.plane.get("/health").status, 204);
    // The same path without the headers is the server's own.
    http.get("/health").expect(200);
    for path in ["/files?path=a", "/process.Process/List", "/execute"] {
        assert_eq!(http.get(path).status, 404, "{path}");
    }
    let by_host = |label: &str| {
        let host = server.client(None).with("host", &format!("{label}.{DOMAIN}"));
        host.with("x-access-token", &own.token).get("/health").status
    };
    assert_eq!(by_host(&format!("49983-{}", own.id)), 204);
    // Other ports are those of programs, for which the token is no key.
    assert_eq!(by_host(&format!("3000-{}", own.id)), 401);
    let other_port = server.client(None).with("e2b-sandbox-id", &own.id);
    let reply = other_port.with("e2b-sandbox-port", "3000").get("/health").expect(400).json();
    assert_eq!(reply["code"], 400, "{reply}");
    // A page of another origin cannot use it, and neither can one under another host name.
    let page = own.plane.with("origin", "https://evil.example");
    assert_eq!(page.get("/health").status, 403);
    assert_eq!(own.plane.with("host", "evil.example").get("/health").status, 421);
}

/// Promises: D8.
#[test]
fn an_access_token_opens_the_data_plane_of_its_sandbox_alone() {
    let mut server = server();
    let own = Own::create(&server, &server.http());
    let neighbour = Own::create(&server, &server.http());
    let key = server.add_key(&["--tenant", "other", "--e2b"]);
    let other_http = server.client(None).with("x-api-key", &key);
    let other = Own::create(&server, &other_http);
    let with = |token: &str, id: &str| {
        let plane = server.client(None).with("x-access-token", token).with("e2b-sandbox-id", id);
        plane.post("/filesystem.Filesystem/Stat", &json!({"path": "/"}))
    };
    assert_eq!(with(&own.token, &own.id).status, 200);
    let mut rows = Rows::new();
    for (name, token, id) in [
        ("another sandbox of the tenant", &neighbour.token, &own.id),
        ("a sandbox of another tenant", &other.token, &own.id),
        ("the own token for another tenant's sandbox", &own.token, &other.id),
        ("no token", &String::new(), &own.id),
        ("a key", &server.key().to_owned(), &own.id),
        ("garbage", &"x".repeat(600), &own.id),
    ] {
        rows.row(name, || {
            let reply = with(token, id);
            assert_eq!(reply.status, 401, "{}", reply.text());
            assert_eq!(reply.json()["code"], 401);
        });
    }
    // A token with a changed byte, and one of a sandbox that has ended, are answered alike.
    let mut forged = own.token.clone();
    forged.truncate(forged.len() - 4);
    forged.push_str("AAAA");
    let forged = with(&forged, &own.id);
    server.http().delete(&format!("/sandboxes/{}", neighbour.id)).expect(204);
    let ended = with(&neighbour.token, &neighbour.id);
    assert_eq!((forged.status, ended.status), (502, 502));
    assert!(ended.text().contains("was not found"), "{}", ended.text());
    // The token ends with the key that created it.
    let keys = server.command(&["keys", "ls", "--json"]);
    let keys = serde_json_value(&keys.stdout);
    let all = keys.as_array().expect("keys");
    let id = all.iter().find(|one| one["tenant"] == "other").expect("the key")["id"].clone();
    assert_eq!(with(&other.token, &other.id).status, 200);
    assert!(server.command(&["keys", "revoke", id.as_str().expect("an id")]).status.success());
    assert_eq!(with(&other.token, &other.id).status, 502);
    assert_eq!(other_http.get("/v2/sandboxes").status, 401);
    let key = server.add_key(&["--tenant", "other"]);
    server.client(Some(&key)).delete(&format!("/sandboxes/{}", other.id)).expect(204);
}

/// Promises: D8.
#[test]
fn a_key_in_the_header_of_e2b_works_for_its_calls_alone() {
    let mut server = server();
    let key = server.add_key(&["--e2b"]);
    let http = server.client(None).with("x-api-key", &key);
    http.get("/v2/sandboxes").expect(200);
    assert_eq!(http.get("/v1/sandboxes").status, 401);
    let reader = server.add_key(&["--e2b", "--read-only"]);
    let http = server.client(None).with("x-api-key", &reader);
    http.get("/v2/sandboxes").expect(200);
    let refused = http.post("/v2/sandboxes", &json!({})).expect(403).json();
    assert_eq!(refused["code"], 403);
    assert!(refused["message"].as_str().expect("text").len() > 10);
}

/// Promises: D9.
#[test]
fn malformed_calls_are_refused_in_the_form_of_their_protocol() {
    let server = server();
    let own = Own::create(&server, &server.http());
    let start = "/process.Process/Start";
    let stream = own.plane.with("content-type", STREAM);
    let good = br#"{"process":{"cmd":"true"}}"#;
    let mut rows = Rows::new();
    let mut too_long = envelope(0, good);
    too_long[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
    for (name, body, code) in [
        ("nothing", Vec::new(), "invalid_argument"),
        ("half an envelope", vec![0, 0, 0], "invalid_argument"),
        ("a shorter message", envelope(0, good)[..10].to_vec(), "invalid_argument"),
        ("two messages", [envelope(0, good), envelope(0, good)].concat(), "invalid_argument"),
        ("an unknown flag", envelope(0x40, good), "invalid_argument"),
        ("an end of stream", envelope(2, good), "invalid_argument"),
        ("a compressed message", envelope(1, good), "unimplemented"),
        ("a length of 4 GiB", too_long, "resource_exhausted"),
        ("a long message", envelope(0, &vec![b' '; TOO_LONG]), "resource_exhausted"),
        ("no JSON", envelope(0, b"\xff{"), "invalid_argument"),
        ("no program", envelope(0, b"{}"), "invalid_argument"),
        ("a list", envelope(0, b"[]"), "invalid_argument"),
        ("a null byte", envelope(0, br#"{"process":{"cmd":"a\u0000"}}"#), "invalid_argument"),
        ("no such program", envelope(0, br#"{"process":{"cmd":"/no"}}"#), "not_found"),
        (
            "no such directory",
            envelope(0, br#"{"process":{"cmd":"true","cwd":"/no"}}"#),
            "invalid_argument",
        ),
    ] {
        rows.row(name, || {
            let end = end_of_stream(&stream.send("POST", start, Some(&body)));
            assert_eq!(end["error"]["code"], code, "{end}");
            assert!(end["error"]["message"].as_str().expect("text").len() > 10, "{end}");
        });
    }
    rows.row("protobuf in a stream", || {
        let plane = own.plane.with("content-type", "application/connect+proto");
        let end = end_of_stream(&plane.send("POST", start, Some(&envelope(0, good))));
        assert_eq!(end["error"]["code"], "invalid_argument", "{end}");
    });
    rows.row("protobuf in a unary call", || {
        let plane = own.plane.with("content-type", "application/proto");
        let reply = plane.send("POST", "/filesystem.Filesystem/Stat", Some(b"\n\x01a"));
        assert_eq!((reply.status, &reply.json()["code"]), (415, &json!("invalid_argument")));
    });
    rows.row("an unknown method", || {
        for path in ["/process.Process/Nothing", "/filesystem.Filesystem/Nothing"] {
            let reply = own.plane.post(path, &json!({}));
            assert_eq!((reply.status, &reply.json()["code"]), (501, &json!("unimplemented")));
        }
        assert_eq!(own.plane.post("/other.Service/Stat", &json!({})).status, 404);
    });
    for (method, body, status) in [
        ("filesystem.Filesystem/Stat", json!({"path": "a\0b"}), 400),
        ("filesystem.Filesystem/Stat", json!({"path": "x".repeat(5000)}), 400),
        ("filesystem.Filesystem/Stat", json!({"path": "~root/x"}), 400),
        ("filesystem.Filesystem/Stat", json!({"path": 1}), 400),
        ("filesystem.Filesystem/Stat", json!([]), 400),
        ("filesystem.Filesystem/CreateWatcher", json!({"path": "/etc/passwd"}), 400),
        ("filesystem.Filesystem/GetWatcherEvents", json!({"watcherId": "x"}), 404),
        ("process.Process/SendSignal", json!({"process": {"pid": 1}, "signal": "SIGHUP"}), 400),
        ("process.Process/SendSignal", json!({"process": {}, "signal": 9}), 400),
        (
            "process.Process/SendInput",
            json!({"process": {"pid": 999_999}, "input": {"stdin": "?"}}),
            404,
        ),
    ] {
        rows.row(&format!("{method} {body:.60}"), || {
            let reply = own.call(method, &body);
            assert_eq!(reply.status, status, "{}", reply.text());
        });
    }
    rows.row("a user that a sandbox does not have", || {
        let plane = own.plane.with("authorization", "Basic bm9ib2R5Og==");
        let reply = plane.post("/filesystem.Filesystem/Stat", &json!({"path": "/"}));
        assert_eq!(reply.status, 401, "{}", reply.text());
    });
    rows.row("a malformed timeout", || {
        let plane = stream.with("connect-timeout-ms", "-1");
        let end = end_of_stream(&plane.send("POST", start, Some(&envelope(0, good))));
        assert_eq!(end["error"]["code"], "invalid_argument", "{end}");
    });
    // The sandbox still works.
    let end = end_of_stream(&stream.send("POST", start, Some(&envelope(0, good))));
    assert_eq!(end, json!({}));
}

/// Promises: D9.
#[test]
fn the_names_in_a_form_stay_inside_the_sandbox() {
    let server = server();
    let own = Own::create(&server, &server.http());
    let form = |name: &str, content: &str| {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n"
        )
    };
    let send = |query: &str, form: &str| {
        let plane = own.plane.with("content-type", "multipart/form-data; boundary=b");
        plane.send("POST", &format!("/files{query}"), Some(form.as_bytes()))
    };
    let written = send("", &format!("{}--b--\r\n", form("../../../tmp/up", "x"))).expect(200);
    assert_eq!(written.json()[0]["path"], "/tmp/up");
    assert!(!std::path::Path::new("/tmp/up").try_exists().expect("can be looked up"), "outside");
    assert_eq!(own.plane.get("/files?path=/tmp/up").text(), "x");
    let mut rows = Rows::new();
    let twice = format!("{}{}--b--\r\n", form("a", "1"), form("./a", "2"));
    for (name, query, body) in [
        ("no file", "", "--b--\r\n".to_owned()),
        ("no end", "", form("cut", "x")),
        ("two of one path", "", twice),
        ("a directory", "?path=/tmp", format!("{}--b--\r\n", form("a", "x"))),
        ("a null byte", "?path=a%00b", format!("{}--b--\r\n", form("a", "x"))),
        ("a parameter that no call has", "?other=1", format!("{}--b--\r\n", form("a", "x"))),
    ] {
        rows.row(name, || {
            let reply = send(query, &body);
            assert!(matches!(reply.status, 400 | 409), "{} {}", reply.status, reply.text());
            assert_eq!(reply.json()["code"], reply.status);
        });
    }
    let exists = own.call("filesystem.Filesystem/Stat", &json!({"path": "cut"}));
    assert_eq!(exists.status, 404, "a form that breaks off changes nothing");
    let gzip = own.plane.with("content-type", "application/octet-stream");
    let gzip = gzip.with("content-encoding", "gzip");
    let reply = gzip.send("POST", "/files?path=bad", Some(b"not gzip"));
    assert_eq!(reply.status, 400, "{}", reply.text());
}

/// Promises: D9.
#[test]
fn what_e2b_has_and_this_server_does_not_is_refused_with_a_reason() {
    let server = server();
    let http = server.http();
    let mut rows = Rows::new();
    for path in ["/volumes/a", "/secrets", "/teams", "/sandboxes/metrics"] {
        rows.row(path, || {
            let reply = http.post(path, &json!({})).expect(501).json();
            assert_eq!(reply["code"], 501);
            assert!(reply["message"].as_str().expect("text").len() > 40, "{reply}");
        });
    }
    for body in [
        json!({"autoPause": true, "autoPauseMemory": false}),
        json!({"mcp": {"a": {}}}),
        json!({"volumeMounts": [{"name": "a", "path": "/a"}]}),
        json!({"network": {"maskRequestHost": "a:1"}}),
        json!({"network": {"dnsServers": ["1.1.1.1"]}}),
        json!({"network": {"denyOut": ["no rule!"]}}),
        json!({"network": {"rules": {"a.example": [{"transform": {"body": "x"}}]}}}),
        json!({"timeout": 1_000_000_000}),
        json!({"metadata": {"a": 1}}),
        json!({"templateID": "No Such Image"}),
        json!([]),
    ] {
        rows.row(&body.to_string(), || {
            let reply = http.post("/v2/sandboxes", &body);
            assert!(matches!(reply.status, 400..=404), "{} {}", reply.status, reply.text());
            let failure = reply.json();
            assert_eq!(failure["code"], reply.status);
            assert!(failure["message"].as_str().expect("text").len() > 10, "{failure}");
        });
    }
    assert!(server.ids(&http).is_empty(), "nothing was created");
}

/// The code interpreter of a sandbox.
fn interpreter(server: &Server, own: &Own) -> Http {
    let plane = server.client(None).with("e2b-sandbox-id", &own.id);
    // The SDKs send only this token with calls about contexts.
    plane.with("e2b-sandbox-port", "49999").with("e2b-traffic-access-token", &own.token)
}

/// Promises: D9.
#[test]
fn calls_of_the_code_interpreter_are_refused_as_text() {
    let server = server();
    let own = Own::create(&server, &server.http());
    let neighbour = Own::create(&server, &server.http());
    let plane = interpreter(&server, &own);
    assert_eq!(plane.get("/health").expect(200).text(), "OK");
    let mut rows = Rows::new();
    for (name, path, body, status) in [
        ("no code", "/execute", json!({}), 400),
        ("code that is no text", "/execute", json!({"code": 1}), 400),
        ("long code", "/execute", json!({"code": "#".repeat(1_100_000)}), 400),
        ("a list", "/execute", json!([]), 400),
        ("an unknown context", "/execute", json!({"code": "1", "context_id": "nosuch"}), 404),
        ("a path as a context", "/execute", json!({"code": "1", "context_id": "../a"}), 400),
        ("both", "/execute", json!({"code": "1", "context_id": "a", "language": "js"}), 400),
        ("an unknown language", "/execute", json!({"code": "1", "language": "cobol"}), 501),
        ("no language", "/execute", json!({"code": "1", "language": "c++"}), 400),
        ("a variable", "/execute", json!({"code": "1", "env_vars": {"a=b": "c"}}), 400),
        ("no directory", "/contexts", json!({"language": "bash", "cwd": "/no"}), 400),
        ("an unknown context to restart", "/contexts/nosuch/restart", json!({}), 404),
        ("an unknown call", "/other", json!({}), 404),
    ] {
        rows.row(name, || {
            let reply = plane.post(path, &body);
            assert_eq!(reply.status, status, "{}", reply.text());
            assert!(reply.text().len() > 10, "{}", reply.text());
        });
    }
    assert_eq!(plane.delete("/contexts/nosuch").status, 404);
    rows.row("the token of another sandbox", || {
        let other = server.client(None).with("e2b-sandbox-id", &own.id);
        let other = other.with("e2b-traffic-access-token", &neighbour.token);
        let reply = other.with("e2b-sandbox-port", "49999").post("/execute", &json!({"code": "1"}));
        assert_eq!(reply.status, 401, "{}", reply.text());
    });
    // The path alone is no call of the interpreter.
    assert_eq!(server.http().post("/execute", &json!({"code": "1"})).status, 404);
    let lines = plane.post("/execute", &json!({"code": "echo $((6 * 7))", "language": "bash"}));
    assert!(lines.expect(200).text().contains("\"text\":\"42\\n\""));
}

/// Promises: D8.
#[test]
fn a_signed_url_opens_one_file_of_one_sandbox_while_that_exists() {
    let server = server();
    let own = Own::create(&server, &server.http());
    let neighbour = Own::create(&server, &server.http());
    let text = own.plane.with("content-type", "application/octet-stream");
    text.send("POST", "/files?path=/tmp/a&username=user", Some(b"own")).expect(200);
    let fetch_signed = |id: &str, path: &str| {
        let plane = server.client(None).with("e2b-sandbox-id", id);
        plane.with("e2b-sandbox-port", "49983").get(path)
    };
    let signed = signed_file("/tmp/a", &own.token, None);
    let fetch = |id: &str| fetch_signed(id, &signed);
    // A link may be used again until it ends.
    for _ in 0..2 {
        assert_eq!(fetch(&own.id).expect(200).text(), "own");
    }
    assert_eq!(fetch(&neighbour.id).status, 401, "it is of another sandbox");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let lasting = signed_file("/tmp/a", &own.token, Some(now + 600));
    assert_eq!(fetch_signed(&own.id, &lasting).expect(200).text(), "own");
    let longer = lasting.replace(&(now + 600).to_string(), &(now + 6000).to_string());
    let other_file = signed.replace("path=/tmp/a", "path=/tmp/b");
    let wrong = [
        ("it has expired", signed_file("/tmp/a", &own.token, Some(now - 10))),
        ("another expiry is not signed", longer),
        ("another file is not signed", other_file),
        ("another user is not signed", signed.replace("username=user", "username=root")),
        ("the token is wrong", signed_file("/tmp/a", &neighbour.token, None)),
        ("there is no signature", "/files?path=/tmp/a&username=user".to_owned()),
    ];
    for (what, path) in wrong {
        let reply = fetch_signed(&own.id, &path);
        assert_eq!(reply.status, 401, "{what}: {}", reply.text());
    }
    let plane = server.client(None).with("e2b-sandbox-id", &own.id);
    let written = plane.with("content-type", "application/octet-stream");
    let written = written.send("POST", &signed, Some(b"changed"));
    assert_eq!(written.status, 401, "a URL to read does not write");
    assert_eq!(fetch(&own.id).expect(200).text(), "own");
    server.http().delete(&format!("/sandboxes/{}", own.id)).expect(204);
    let ended = fetch(&own.id);
    assert!(matches!(ended.status, 401 | 502), "{} {}", ended.status, ended.text());
}

/// Promises: D11.
#[test]
fn a_sandbox_with_auto_pause_is_paused_at_its_timeout_and_lives_again() {
    let server = server();
    let http = server.http();
    let body = json!({"templateID": "base", "timeout": 1, "autoPause": true});
    let made = http.post("/v2/sandboxes", &body).expect(201).json();
    let id = made["sandboxID"].as_str().expect("an id").to_owned();
    let path = format!("/sandboxes/{id}");
    let state = || http.get(&path).expect(200).json()["state"].clone();
    // It stays so: the lifetime of a paused sandbox does not pass.
    wait_until("it is paused at its end", SOON, || {
        let view = http.get(&format!("/v1/sandboxes/{id}")).expect(200).json();
        (view["state"] == "paused" && view["expires_at_ms"] == Value::Null).then_some(())
    });
    assert_eq!(state(), "paused");
    http.post(&format!("{path}/connect"), &json!({"timeout": 600})).expect(201);
    assert_eq!(state(), "running");
    let view = http.get(&format!("/v1/sandboxes/{id}")).expect(200).json();
    assert!(view["expires_at_ms"].as_i64().is_some(), "its lifetime began again: {view}");
    // Without memory its processes end, and its files stay.
    let sandbox = server.named(&id);
    sandbox.exec("echo kept >/home/user/file; nohup sleep 1000 >/dev/null 2>&1 &");
    http.post(&format!("{path}/pause"), &json!({"memory": false})).expect(204);
    assert_eq!(state(), "paused");
    let expires =
        || http.get(&format!("/v1/sandboxes/{id}")).expect(200).json()["expires_at_ms"].clone();
    assert_eq!(expires(), Value::Null, "a paused sandbox does not end");
    // A timeout that is set while it is paused begins when a call wakes it.
    http.post(&format!("{path}/timeout"), &json!({"timeout": 500})).expect(204);
    assert_eq!(expires(), Value::Null);
    let found = sandbox.exec("cat /home/user/file; pgrep -c sleep");
    assert_eq!(found["stdout"], "kept\n0\n", "{found}");
    assert_eq!(state(), "running");
    assert!(expires().as_i64().is_some(), "its lifetime began again");
    http.delete(&path).expect(204);
}

/// Promises: D11.
#[test]
fn a_pause_without_memory_ends_what_runs() {
    let server = server();
    let http = server.http();
    let made = http.post("/v2/sandboxes", &json!({"templateID": "base"})).expect(201).json();
    let id = made["sandboxID"].as_str().expect("an id").to_owned();
    let path = format!("/sandboxes/{id}");
    let view = http.get(&path).expect(200).json();
    assert_eq!(view["lifecycle"], json!({"autoResume": false, "onTimeout": "kill"}));
    let sandbox = server.named(&id);
    let asleep = || sandbox.exec("pgrep -c sleep")["stdout"] == "1\n";
    thread::scope(|scope| {
        // The SDKs take a refusal because of this call for a sandbox that is paused already.
        let call = scope.spawn(|| sandbox.post("/exec", &json!({"command": "sleep 1000"})));
        wait_until("it runs", SOON, || asleep().then_some(()));
        http.post(&format!("{path}/pause"), &json!({"memory": false})).expect(204);
        assert_eq!(call.join().expect("the call").status, 409);
    });
    assert_eq!(http.get(&path).expect(200).json()["state"], "paused");
    http.post(&format!("/v2{path}/connect"), &json!({})).expect(201);
    assert!(!asleep());
    // A client that connects may also choose to lose the memory.
    for (memory, running) in [(true, true), (false, false)] {
        sandbox.exec("nohup sleep 1000 >/dev/null 2>&1 &");
        wait_until("it alone runs", SOON, || asleep().then_some(()));
        http.post(&format!("{path}/pause"), &json!({})).expect(204);
        http.post(&format!("/v2{path}/connect"), &json!({"memory": memory})).expect(201);
        assert_eq!(asleep(), running, "memory: {memory}");
        assert_eq!(http.get(&path).expect(200).json()["state"], "running");
        sandbox.exec("pkill sleep");
    }
    // Also while a call uses the paused sandbox.
    thread::scope(|scope| {
        let call = scope.spawn(|| sandbox.post("/exec", &json!({"command": "sleep 1000"})));
        wait_until("it runs", SOON, || asleep().then_some(()));
        http.post(&format!("{path}/pause"), &json!({})).expect(204);
        http.post(&format!("/v2{path}/connect"), &json!({"memory": false})).expect(201);
        assert_eq!(call.join().expect("the call").status, 409);
    });
    assert!(!asleep());
}

/// The SDKs read 409 as a sandbox that is paused already, and nothing else is answered so.
/// Promises: D11.
#[test]
fn a_sandbox_that_sleeps_because_it_is_idle_counts_as_paused() {
    let server = server();
    let http = server.http();
    let body = json!({"id": "idle", "sleep_after_s": 600, "ttl_s": 600});
    http.post("/v1/sandboxes", &body).expect(201);
    server.named("idle").post("/sleep", &json!({})).expect(200);
    http.post("/sandboxes/idle/pause", &json!({})).expect(204);
    let view = http.get("/v1/sandboxes/idle").expect(200).json();
    assert_eq!((&view["state"], &view["expires_at_ms"]), (&json!("sleeping"), &Value::Null));
    http.post("/sandboxes/nosuch/pause", &json!({})).expect(404);
    http.delete("/sandboxes/idle").expect(204);
}

/// The user of an image may be unable to create the home directory that clients expect.
#[test]
fn a_sandbox_without_a_home_directory_is_refused_and_deleted() {
    let server = server();
    let http = server.http();
    let image = Image::new(&[busybox().bytes()], &json!({"User": "1000:1000"}));
    http.send("POST", "/v1/images/import?name=plain:1", Some(&image.layout())).expect(201);
    let refused = http.post("/v2/sandboxes", &json!({"templateID": "plain:1"}));
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(http.get("/v1/sandboxes").expect(200).json(), json!([]));
}
