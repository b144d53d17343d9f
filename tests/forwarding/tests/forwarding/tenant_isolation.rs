//! The rows of tenants and secrets, each through a node that does not own the sandbox. `rights` has those
//! of keys, tickets and links, `pages` those of browsers.
//!
//! T18 (safe defaults) has none: a server decides where it listens and which key counts before there is a
//! request to forward, and without `[cluster]` it forwards none.

use crate::calls::{body, calls};
use crate::cluster::{Cluster, KEY, PORTS_DOMAIN};
use isolet_http::ConnectionLimits;
use isolet_kit::{Http, Sandbox, Shell, Terminal, Value, json};
use std::net::Ipv4Addr;

/// An answer, with the id removed.
fn shape(http: &Http, method: &str, path: &str, body: Option<&Value>, id: &str) -> String {
    let text = body.map(Value::to_string);
    let reply = http.send(method, path, text.as_deref().map(str::as_bytes));
    let varies = |name: &str| matches!(name, "date" | "content-length" | "x-request-id");
    let headers = reply.headers.iter().filter(|(name, _)| !varies(name));
    let headers: Vec<String> = headers.map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{} {headers:?} {}", reply.status, reply.text()).replace(id, "ID")
}

/// Promises: FW4, T2.
#[test]
fn t2_every_call_about_another_tenants_sandbox_is_answered_like_one_about_none() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("mystery");
    sandbox.command("dev", "echo canary >/workspace/x");
    sandbox.listen(80);
    sandbox.post("/links", &json!({"port": 80})).expect(201);
    let (_, secret) = cluster.add_key("a", "other", false);
    let other = cluster.node("a").client(Some(&secret));
    let mut compared = 0;
    for call in calls() {
        // Other methods create a sandbox of the caller.
        let creates = !matches!(call.method.as_str(), "GET" | "PATCH" | "DELETE");
        if creates || call.is_socket || !call.is_about_a_sandbox() {
            continue;
        }
        let body = body(&call);
        let ask = |id| shape(&other, &call.method, &call.path(id), body.as_ref(), id);
        assert_eq!(ask("mystery"), ask("nothing"), "{call:?}");
        assert_eq!(cluster.directory.owner("other", "mystery"), None, "{call:?} creates nothing");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
    assert_eq!(cluster.directory.owner("other", "mystery"), None, "it created nothing");
    // A socket is answered alike as well.
    let watch = |id: &str| Sandbox { id: id.into(), http: other.clone() };
    let [mine, none] = ["mystery", "nothing"].map(|id| watch(id).socket("/terminal?mode=view"));
    assert_eq!(mine.err(), none.err());
    assert_eq!(sandbox.says("cat x"), "canary\n");
}

/// Promises: FW4, FW7, T2.
#[test]
fn t2_snapshots_sessions_lists_and_cursors_of_another_tenant_are_not_found_on_other_nodes() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("mystery");
    let snapshot = sandbox.post("/snapshots", &json!({"name": "canary"})).expect(201).json();
    let snapshot = snapshot["id"].as_str().expect("an id").to_owned();
    let body = json!({"sandbox_id": "mystery"});
    let session = sandbox.http.post("/v1/sessions", &body).expect(201).json();
    let session = session["id"].as_str().expect("an id").to_owned();
    let (_, secret) = cluster.add_key("a", "other", false);
    let other = cluster.node("a").client(Some(&secret));
    for (known, never, prefix, rest) in [
        (snapshot.as_str(), "snap_0000000000000000", "/v1/snapshots/", ""),
        ("canary", "carrot", "/v1/snapshots/", ""),
        (&session, "sess_aaaaaaaaaaaa", "/v1/sessions/", ""),
        (&session, "sess_aaaaaaaaaaaa", "/v1/sessions/", "/files"),
    ] {
        for method in ["GET", "DELETE"] {
            let ask = |id: &str| shape(&other, method, &format!("{prefix}{id}{rest}"), None, id);
            assert_eq!(ask(known), ask(never), "{method} {prefix}{rest}");
        }
    }
    let create = |id: &str| {
        let body = json!({"id": "mine", "snapshot": id});
        shape(&other, "POST", "/v1/sandboxes", Some(&body), id)
    };
    assert_eq!(create(&snapshot), create("snap_0000000000000000"));
    for list in ["/v1/sandboxes", "/v1/runs", "/v1/sessions", "/v1/snapshots"] {
        for query in ["", "?cursor=bXlzdGVyeQ", "?limit=1"] {
            let reply = other.get(&format!("{list}{query}"));
            assert!(matches!(reply.status, 200 | 400), "{list}: {}", reply.text());
            for secret in ["mystery", "canary", snapshot.as_str(), &session] {
                assert!(!reply.text().contains(secret), "{list}{query}: {}", reply.text());
            }
        }
    }
    // Its stream of events begins with the first event of its own.
    let mut events = other.try_open("GET", "/v1/events", None).expect("an answer");
    sandbox.command("dev", "true");
    other.post("/v1/sandboxes", &json!({"id": "mine"})).expect(201);
    let first = loop {
        let event = events.event().expect("it goes on");
        if event.name != "gap" {
            break event;
        }
    };
    assert!(first.data.contains("\"mine\"") && !first.data.contains("mystery"), "{first:?}");
    sandbox.http.delete(&format!("/v1/snapshots/{snapshot}")).expect(200);
}

/// Promises: FW4, T3.
#[test]
fn t3_guesses_count_on_the_node_that_receives_them() {
    let limit = 50;
    let cluster = Cluster::with_not_found_limit(2, limit);
    let sandbox = cluster.sandbox("box");
    let (_, secret) = cluster.add_key("a", "default", false);
    let guessing = cluster.node("a").client(Some(&secret));
    // The owner answers these with 404, and forwarded ones do not count as one client there.
    let ask = |number: u32| guessing.get(&sandbox.path(&format!("/sessions/none{number}"))).status;
    let answers: Vec<u16> = (0..limit + 5).map(ask).collect();
    let found = |status: u16| answers.iter().filter(|one| **one == status).count();
    assert_eq!((found(404), found(429)), (limit as usize, 5), "{answers:?}");
    sandbox.http.get(&sandbox.path("")).expect(200);
}

/// Promises: FW4, T5, T7.
#[test]
fn t5_t7_pages_of_foreign_origins_and_foreign_hosts_reach_no_other_node() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    let before = cluster.node("b").received().len();
    let port = sandbox.http.port;
    for origin in [
        "http://attacker.example".to_owned(),
        "null".into(),
        format!("http://127.0.0.1.evil:{port}"),
    ] {
        let from = sandbox.http.with("origin", &origin);
        assert_eq!(Shell::open(&from, &sandbox.path("/shell")).err(), Some(403), "{origin}");
        assert_eq!(Terminal::open(&from, &sandbox.path("/terminal")).err(), Some(403), "{origin}");
    }
    for host in ["attacker.example", "127.0.0.1.attacker.example", "169.254.169.254"] {
        let http = sandbox.http.with("host", &format!("{host}:{port}"));
        assert!(matches!(http.get(&sandbox.path("")).status, 403 | 421), "{host}");
        assert!(Shell::open(&http, &sandbox.path("/shell")).is_err(), "{host}");
    }
    assert_eq!(cluster.node("b").received().len(), before, "none was forwarded");
}

/// Promises: FW1, FW4.
#[test]
fn t8_t9_a_program_behind_another_node_has_no_privileges() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.listen(8000);
    let at = |path: &str| sandbox.http.get(&sandbox.path(&format!("/ports/8000{path}")));
    let page = at(
        "/headers?set-cookie=a%3Db&strict-transport-security=max-age%3D9&service-worker-allowed=%2F\
         &clear-site-data=%22*%22&content-type=text%2Fhtml&isolet-peer=x&x-own=kept",
    );
    for gone in
        ["set-cookie", "strict-transport-security", "service-worker-allowed", "clear-site-data"]
    {
        assert_eq!(page.header(gone), None, "{gone}");
    }
    assert_eq!(page.header("x-own"), Some("kept"));
    assert!(page.header("content-security-policy").is_some(), "{:?}", page.headers);
    // No node follows a redirect.
    for to in ["http://169.254.169.254/latest", "http://localhost:9/x"] {
        let moved = at(&format!("/redirect?to={to}")).expect(302);
        assert_eq!(moved.header("location"), Some(to));
    }
    let refused = sandbox.http.get(&sandbox.path("/ports/8000@169.254.169.254/x"));
    assert_eq!(refused.status, 400, "{}", refused.text());
}

/// Promises: FW5, T16.
#[test]
fn t16_a_link_opens_its_port_of_its_sandbox_alone_on_every_node() {
    let cluster = Cluster::start(2);
    let sandbox = cluster.sandbox("box");
    sandbox.listen(8000);
    sandbox.listen(8001);
    let made = sandbox.post("/links", &json!({"port": 8000})).expect(201).json();
    let token = made["token"].as_str().expect("a token").to_owned();
    let keyless = cluster.node("a").client(None);
    let by_host = |label: &str| {
        let http = keyless.with("host", &format!("{label}.{PORTS_DOMAIN}:{}", keyless.port));
        http.get(&format!("/echo?isolet-token={token}")).status
    };
    assert_eq!(by_host("8000-box"), 200);
    for label in ["8001-box", "8000-bo", "8000-other"] {
        assert!(matches!(by_host(label), 401 | 404), "{label}: {}", by_host(label));
    }
    assert_eq!(keyless.get(&sandbox.path("/ports/8000/echo")).status, 401, "and no other path");
    sandbox.delete();
    cluster.sandbox("box").listen(8000);
    let status = keyless.get(&format!("/v1/links/{token}/echo")).status;
    assert!(matches!(status, 401 | 404), "a link of a former sandbox: {status}");
}

/// Promises: FW4, T17.
#[test]
fn t17_the_owner_records_the_key_and_the_client_of_a_forwarded_call() {
    let cluster = Cluster::start(2);
    cluster.sandbox("box");
    let (id, secret) = cluster.add_key("a", "default", false);
    let http = cluster.node("a").client(Some(&secret));
    let sandbox = Sandbox { id: "box".into(), http };
    sandbox.command("dev", ": hidden-1");
    let saved = sandbox.http.send("PUT", &sandbox.path("/files/a%0Ab%1B%5B2J"), Some(b"hidden-2"));
    assert!(saved.status < 300, "{}", saved.text());
    sandbox.shell().close();
    let log = cluster.node("b").http().get("/v1/audit").expect(200).text();
    let entries: Vec<Value> = log.lines().map(|line| line.parse().expect("JSON")).collect();
    for event in ["exec.start", "file.write", "shell.open"] {
        let by_key = |one: &&Value| one["event"] == event && one["data"]["key"] == id.as_str();
        let entry = entries.iter().find(by_key).unwrap_or_else(|| panic!("{event}: {log}"));
        assert_eq!(entry["data"]["from"], Ipv4Addr::LOCALHOST.to_string(), "{entry}");
    }
    assert!(log.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)));
    for secret in ["hidden", KEY, &secret] {
        assert!(!log.contains(secret), "{secret}");
    }
    let (_, other) = cluster.add_key("b", "other", false);
    let theirs = cluster.node("b").client(Some(&other)).get("/v1/audit").expect(200).text();
    assert!(!theirs.contains("box"), "{theirs}");
}

/// Promises: FW4, T20.
#[test]
fn t19_streams_of_a_read_only_key_on_another_node_leave_room_for_other_tenants() {
    let limits = ConnectionLimits::of_max(64).with_tenant_max(4);
    let cluster = Cluster::with_limits(2, limits);
    let sandbox = cluster.sandbox("box");
    let reader = cluster.node("a").client(Some(&cluster.add_key("a", "default", true).1));
    let open = || reader.try_open("GET", &sandbox.path("/events"), None).expect("an answer");
    let mut held = Vec::new();
    let refused = loop {
        let stream = open();
        if stream.status != 200 {
            break stream.status;
        }
        held.push(stream);
        assert!(held.len() <= 4, "no limit");
    };
    assert_eq!(refused, 429);
    let other = cluster.node("a").client(Some(&cluster.add_key("a", "other", false).1));
    assert_eq!(other.get("/v1/sandboxes").status, 200);
    let near = cluster.node("b").client(Some(&cluster.add_key("b", "other", false).1));
    assert_eq!(near.get("/v1/sandboxes").status, 200, "nor on the owner");
}
