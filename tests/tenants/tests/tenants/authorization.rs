//! Authentication and authorization: keys, tenants, host names and origins.

use isolet_kit::image::{Image, Registry, busybox};
use isolet_kit::{Http, Options, Reply, Rows, SOON, Server, Shell, Value, json, wait_until};
use std::sync::{Mutex, OnceLock};

/// Placeholder for the bytes of an empty tar archive.
const EMPTY_ARCHIVE: &str = "an empty archive";
/// Placeholder for the archive of an image.
const IMAGE_ARCHIVE: &str = "an image";
/// An image that a tenant owns.
const IMAGE: &str = "local/tools:1";
/// Routes that name the image in their query or body.
const IMAGE_PATHS: [&str; 2] = ["/v1/images/export", "/v1/images/tag"];

/// A registry with one image, shared by all tests of this process.
fn registry() -> &'static (Registry, String) {
    static REGISTRY: OnceLock<(Registry, String)> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let registry = Registry::start();
        let name = registry.has("door", Image::new(&[busybox().bytes()], &json!({})));
        (registry, name)
    })
}

/// Configuration of a server that uses that registry.
pub(crate) fn images() -> String {
    format!("[images]\nregistries = [\"{}\"]\n", registry().0.host())
}

/// A valid body for each route that takes one. A new route needs a line here: the test of all
/// routes fails until it has one.
fn body(method: &str, path: &str) -> Option<Value> {
    let native = match (method, path) {
        ("get" | "delete", _) => Value::Null,
        ("post", "/v1/sandboxes" | "/v1/sandboxes/{id}/sessions" | "/v1/runs" | "/v1/sessions") => {
            json!({})
        }
        ("post", "/v1/sandbox" | "/v1/sandbox/{id}/session" | "/v1/sandbox/{id}/tunnel/{port}") => {
            json!({})
        }
        ("post", "/v1/sandbox/{id}/exec") => json!({"argv": ["cat", "/workspace/secret"]}),
        ("post", "/v1/sandbox/{id}/persist" | "/v1/pool/prime" | "/v1/pool/shutdown-prewarmed") => {
            Value::Null
        }
        ("post", "/v1/sandbox/{id}/hydrate") => json!(EMPTY_ARCHIVE),
        ("patch", "/v1/sandboxes/{id}") => json!({"metadata": {}}),
        ("patch", "/v1/sandboxes/{id}/sessions/{sid}") => json!({"env": {"A": "b"}}),
        ("patch", "/v1/sandboxes/{id}/network") => json!({"network": "none"}),
        ("post", "/v1/sandboxes/{id}/exec" | "/v1/sandboxes/{id}/sessions/{sid}/exec") => {
            json!({"command": "cat /workspace/secret; :"})
        }
        ("post", "/v1/runs/{id}/exec" | "/v1/sessions/{sid}/exec") => {
            json!({"command": "cat /workspace/secret; :"})
        }
        ("post", "/v1/sandboxes/{id}/terminals/{sid}/recording") => Value::Null,
        ("post", "/v1/sandboxes/{id}/links") => json!({"port": 8000}),
        ("post", "/v1/tickets") => json!({"sandbox": "any", "use": "terminal"}),
        ("post", "/v1/sandboxes/{id}/contexts") => json!({}),
        ("post", "/v1/sandboxes/{id}/contexts/{cid}/run") => {
            json!({"code": "open('/workspace/secret').read()"})
        }
        (
            "post",
            "/v1/sandboxes/{id}/contexts/{cid}/interrupt"
            | "/v1/sandboxes/{id}/contexts/{cid}/restart",
        ) => Value::Null,
        ("put", "/v1/network-profiles/{name}") => json!({"deny": ["*"]}),
        ("put", "/v1/images/builds/files/{files}") => json!(EMPTY_ARCHIVE),
        ("put", _) => json!("x"),
        ("post", "/v1/sandboxes/{id}/files" | "/v1/sandboxes/{id}/sessions/{sid}/files") => {
            json!({"op": "mkdir", "path": "made"})
        }
        ("post", "/v1/sandboxes/{id}/processes") => json!({"command": "true"}),
        ("post", "/v1/sandboxes/{id}/processes/{process}/stdin") => json!({"data": "x"}),
        ("post", "/v1/sandboxes/{id}/processes/{process}/signal") => json!({"signal": "CONT"}),
        ("post", "/v1/sandboxes/{id}/processes/{process}/kill") => json!({"signal": "KILL"}),
        ("post", "/v1/sandboxes/{id}/processes/{process}/wait") => json!({"log": {"text": "on"}}),
        ("post", "/v1/nodes/{node}/cordon" | "/v1/nodes/{node}/uncordon") => Value::Null,
        ("post", "/v1/nodes/{node}/declare-dead") => Value::Null,
        ("post", "/v1/nodes/{node}/drain") => json!({}),
        ("post", "/v1/sandboxes/{id}/move") => json!({"node": "a"}),
        ("post", "/v1/sandboxes/{id}/sleep" | "/v1/sandboxes/{id}/recover") => Value::Null,
        ("post", "/v1/sandboxes/{id}/snapshots" | "/v1/sandboxes/{id}/fork") => json!({}),
        ("post", "/v1/sandboxes/{id}/restore") => json!({"snapshot": SNAPSHOT}),
        ("post", "/v1/snapshots/{snapshot}/push") => Value::Null,
        ("post", "/v1/store/snapshots/{snapshot}/pull") => json!({}),
        ("post", "/v1/runs/{id}/snapshot") => Value::Null,
        ("post", "/v1/runs/{id}/fork") => json!({"count": 1}),
        ("post", "/v1/runs/restore") => json!({"snapshot_id": SNAPSHOT}),
        ("post", "/v1/sandboxes/{id}/pause" | "/v1/sandboxes/{id}/resume") => Value::Null,
        ("post", "/v1/runs/{id}/hibernate" | "/v1/runs/{id}/resume") => Value::Null,
        ("post", "/v1/images") => json!({"snapshot": SNAPSHOT, "name": "committed:1"}),
        ("post", "/v1/images/pull") => json!({"image": registry().1}),
        ("post", "/v1/images/import") => json!(IMAGE_ARCHIVE),
        ("post", "/v1/images/gc") => json!({}),
        ("post", "/v1/images/tag") => json!({"image": IMAGE, "name": "local/more:1"}),
        ("post", "/v1/images/builds") => json!({"names": ["built:1"], "from": "host"}),
        ("post", "/v1/keys") => json!({"label": "made"}),
        ("post", "/v1/webhooks") => json!({"url": RECEIVER}),
        ("patch", "/v1/webhooks/{webhook}") => json!({"enabled": false}),
        ("post", "/v1/webhooks/{webhook}/rotate" | "/v1/webhooks/{webhook}/test") => Value::Null,
        ("patch", "/v1/runs/{id}") => json!({"timeout": 100}),
        ("post", "/v1/runs/{id}/files/upload") => json!("x"),
        _ => return None,
    };
    Some(native)
}

/// The URL of a receiver that does not exist.
const RECEIVER: &str = "https://receiver.invalid/hook";
/// The name of the snapshot that routes name.
const SNAPSHOT: &str = "canary";

/// Query strings for reading calls that need more than a path.
fn query(method: &str, path: &str) -> &'static str {
    match path {
        "/v1/sessions" if method == "DELETE" => "?older_than=0s",
        "/v1/runs/{id}/files/download" => "?path=/workspace/secret",
        "/v1/runs/{id}/files" => "?path=/workspace",
        "/v1/runs/{id}/files/upload" => "?path=/workspace/up",
        "/v1/images/import" => "?name=local/other:1",
        "/v1/images/export" => "?name=local/tools:1",
        _ => "",
    }
}

pub(crate) struct Route {
    pub(crate) method: String,
    pub(crate) path: String,
    body: Value,
    pub(crate) socket: bool,
    /// The recording of the sandbox that was created last.
    recording: Mutex<String>,
    /// The API key that was created last.
    key: Mutex<String>,
    /// The build that was started last.
    build: Mutex<String>,
    /// The webhook that was created last.
    webhook: Mutex<String>,
}

/// Every route of the served OpenAPI document.
pub(crate) fn routes(http: &Http) -> Vec<Route> {
    let document = http.get("/v1/openapi.json").expect(200).json();
    let mut all = Vec::new();
    for (path, calls) in document["paths"].as_object().expect("paths") {
        for (method, call) in calls.as_object().expect("calls") {
            let known = body(method, path);
            let body = known.unwrap_or_else(|| panic!("{method} {path} is new: add its body here"));
            let socket = ["/shell", "/terminal", "/pty", "/tcp/{port}"]
                .iter()
                .any(|end| path.ends_with(end));
            // A route that is documented but not implemented answers every caller the same.
            if call["responses"]["501"].is_null() {
                all.push(Route {
                    method: method.to_uppercase(),
                    path: path.clone(),
                    body,
                    socket,
                    recording: Mutex::default(),
                    key: Mutex::default(),
                    build: Mutex::default(),
                    webhook: Mutex::default(),
                });
            }
        }
    }
    assert!(all.len() > 8, "{} routes", all.len());
    all
}

impl Route {
    fn at(&self, id: &str) -> String {
        let session = if self.path.starts_with("/v1/sessions") { id } else { "s" };
        let path = self.path.replace("{id}", id).replace("{sid}", session);
        let bridge = path.starts_with("/v1/sandbox/");
        let path = path.replace("{cid}", "python");
        let path = path
            .replace("{path}", if bridge { "workspace/secret" } else { "secret" })
            .replace("{port}", "8000")
            .replace("{name}", "profile")
            .replace("{image}", IMAGE)
            .replace("{process}", "daemon")
            .replace("{snapshot}", SNAPSHOT)
            .replace("{other}", SNAPSHOT)
            .replace("{files}", &"a".repeat(64))
            .replace("{build}", &self.build.lock().expect("a text"))
            .replace("{webhook}", &self.webhook.lock().expect("a text"))
            .replace("{key_id}", &self.key.lock().expect("a text"))
            .replace("{recording}", &self.recording.lock().expect("a text"));
        path + query(&self.method, &self.path)
    }

    /// Sends the request and returns the status of its answer.
    pub(crate) fn ask(&self, http: &Http, id: &str) -> u16 {
        if self.socket {
            return match Shell::open(http, &self.at(id)) {
                Ok(_) => 200,
                Err(status) => status,
            };
        }
        if self.path.ends_with("/events") {
            // This answer has no end.
            return http.try_open(&self.method, &self.at(id), None).map_or(0, |open| open.status);
        }
        self.send(http, id).status
    }

    /// The complete answer of a route whose answer ends.
    pub(crate) fn send(&self, http: &Http, id: &str) -> Reply {
        let text = self.body.to_string();
        let archive = (self.body == IMAGE_ARCHIVE)
            .then(|| Image::new(&[busybox().bytes()], &json!({})).layout());
        let empty = (self.body == EMPTY_ARCHIVE).then_some(&[0; 1024][..]);
        let bytes = archive.as_deref().or(empty).unwrap_or(text.as_bytes());
        let body = (!self.body.is_null()).then_some(bytes);
        http.send(&self.method, &self.at(id), body)
    }

    /// Whether the route names something that must exist.
    pub(crate) fn names_one(&self) -> bool {
        self.path.contains('{') && !self.makes() || self.uses_snapshot()
    }

    /// The status when nothing has that name.
    pub(crate) fn missed(&self) -> u16 {
        match (self.method.as_str(), self.path.as_str()) {
            ("GET", "/v1/sandbox/{id}/running") => 200,
            // It says whether the caller has uploaded such files.
            ("GET", "/v1/images/builds/files/{files}") => 200,
            ("DELETE", "/v1/sandbox/{id}" | "/v1/sandbox/{id}/tunnel/{port}") => 204,
            _ => 404,
        }
    }

    /// Whether the route leads to a program inside a sandbox, which read-only keys may not reach.
    fn leads_in(&self) -> bool {
        self.path.contains("{port}") && !self.path.contains("/links/")
    }

    /// Whether the route or its body names a snapshot, or its query or body an image.
    fn uses_snapshot(&self) -> bool {
        let commits = self.method == "POST" && self.path == "/v1/images";
        let images = IMAGE_PATHS.contains(&self.path.as_str());
        self.path.contains("{snapshot}") || self.path.ends_with("/restore") || commits || images
    }

    fn reads(&self) -> bool {
        self.method == "GET" && !self.socket && !self.leads_in()
    }

    /// Whether the call creates a missing sandbox: an id that another tenant uses is then free.
    fn makes(&self) -> bool {
        let within = ["/v1/runs", "/v1/sessions/"].iter().any(|at| self.path.starts_with(at));
        let ends = [
            "/exec",
            "/sessions",
            "/shell",
            "/terminal",
            "/pty",
            "/files",
            "/processes",
            "sandbox/{id}/session",
            "/tunnel/{port}",
            "/hydrate",
            "/contexts",
            "/run",
        ];
        let works = self.method == "PUT" || ends.iter().any(|end| self.path.ends_with(end));
        !self.path.contains('{') && !self.uses_snapshot()
            || (works && !self.reads() && !within && self.method != "DELETE")
    }
}

/// Creates a new sandbox with a session and a secret for each request, together with everything
/// that the route names.
pub(crate) fn fresh(server: &Server, route: &Route) -> (String, String) {
    let http = server.http();
    let id = if route.path.starts_with("/v1/runs") {
        http.post("/v1/runs", &json!({"timeout": 300})).json()["id"]
            .as_str()
            .expect("a run")
            .to_owned()
    } else if route.path.starts_with("/v1/sandbox/") {
        // Ids of this dialect allow fewer characters.
        let made = server.sandbox();
        made.delete();
        server.sandbox_with(&json!({"id": made.id.replace("sb_", "")})).id
    } else {
        server.sandbox().id
    };
    let sandbox = server.named(&id);
    sandbox.command("s", "echo canary-of-default >/workspace/secret");
    if route.path.contains("/links") {
        sandbox.post("/links", &json!({"port": 8000})).expect(201);
    }
    if route.path.contains("{key_id}") {
        let made = http.post("/v1/keys", &json!({})).json();
        let key = made["id"].as_str().expect("an id").to_owned();
        *route.key.lock().expect("a text") = key;
    }
    if route.path.contains("/v1/webhooks") {
        // A tenant has at most 16.
        for made in http.get("/v1/webhooks").expect(200).json().as_array().expect("a list") {
            http.delete(&format!("/v1/webhooks/{}", made["id"].as_str().expect("an id")));
        }
        let made = http.post("/v1/webhooks", &json!({"url": RECEIVER})).expect(201).json();
        let webhook = made["id"].as_str().expect("an id").to_owned();
        *route.webhook.lock().expect("a text") = webhook;
    }
    if route.path.contains("{files}") {
        let path = format!("/v1/images/builds/files/{}", "a".repeat(64));
        http.send("PUT", &path, Some(&[0; 1024])).expect(200);
    }
    if route.path.contains("{build}") {
        let steps = json!([{"type": "run", "command": "sleep 600"}]);
        let wish = json!({"names": ["built:1"], "from": "host", "steps": steps});
        let made = http.post("/v1/images/builds", &wish).json();
        let build = made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        *route.build.lock().expect("a text") = build;
    }
    if route.path.contains("{image}") || IMAGE_PATHS.contains(&route.path.as_str()) {
        let archive = Image::new(&[busybox().bytes()], &json!({})).layout();
        let path = format!("/v1/images/import?name={IMAGE}");
        http.send("POST", &path, Some(&archive)).expect(201);
    }
    if route.path.contains("/network-profiles/") {
        let reply = http.send("PUT", "/v1/network-profiles/profile", Some(b"{}"));
        assert!(reply.status < 300, "{}", reply.text());
    }
    if route.uses_snapshot() {
        http.delete(&format!("/v1/snapshots/{SNAPSHOT}"));
        sandbox.post("/snapshots", &json!({"name": SNAPSHOT})).expect(201);
    }
    if route.leads_in() {
        sandbox.background("exec python3 -m http.server --bind 127.0.0.1 8000");
        sandbox.await_port(8000);
    }
    if route.path.contains("/processes") {
        let daemon = json!({"id": "daemon", "command": "echo on; exec sleep 600", "stdin": true});
        sandbox.post("/processes", &daemon).expect(201);
    }
    if route.path.contains("/recording") {
        sandbox.terminal("session=s").close();
        let made = sandbox.post("/terminals/s/recording", &json!({})).expect(201).json();
        let id = made["id"].as_str().expect("an id").to_owned();
        *route.recording.lock().expect("a text") = id;
    }
    if route.method == "DELETE" && route.path.ends_with("/terminals/{sid}") {
        sandbox.terminal("session=s").close();
    }
    if route.path.contains("{cid}") {
        sandbox.post("/contexts/python/run", &json!({"code": ""})).expect(200);
    }
    if !route.path.starts_with("/v1/sessions") {
        return (id.clone(), id);
    }
    let session = http.post("/v1/sessions", &json!({"sandbox_id": id})).expect(201).json();
    (id, session["id"].as_str().expect("a session").to_owned())
}

/// Promises: T1.
#[test]
fn t1_every_route_answers_each_kind_of_key_as_specified() {
    let mut server = Options::new().config(&images()).start();
    let other = server.add_key(&["--tenant", "other"]);
    let reader = server.add_key(&["--tenant", "default", "--read-only"]);
    let expired = server.add_key(&["--tenant", "default", "--expires", "1s"]);
    let revoked = server.add_key(&["--tenant", "default"]);
    revoke(&server, &revoked);
    let with = |key: Option<&str>| Http::new(server.port(), key);
    wait_until("one key expires, one is revoked", SOON, || {
        let gone = |key: &str| with(Some(key)).get("/v1/sandboxes").status == 401;
        (gone(&expired) && gone(&revoked)).then_some(())
    });
    let mut rows = Rows::new();
    for route in routes(&server.http()) {
        if route.path == "/health" {
            assert_eq!(route.ask(&with(None), ""), 200, "health needs no key");
            continue;
        }
        rows.row(&format!("{} {}", route.method, route.path), || {
            let (sandbox, id) = fresh(&server, &route);
            for (name, key) in [
                ("none", None),
                ("bad", Some("no-such-key")),
                ("expired", Some(expired.as_str())),
                ("revoked", Some(revoked.as_str())),
            ] {
                assert_eq!(route.ask(&with(key), &id), 401, "key {name}");
            }
            let status = route.ask(&with(Some(&other)), &id);
            if route.path == "/metrics" {
                assert_eq!(status, 403, "metrics are about all tenants");
            } else if route.makes() {
                assert!(matches!(status, 200..=204), "its own new one: {status}");
            } else {
                assert_eq!(status, route.missed(), "the other tenant's key");
                assert_eq!(
                    route.ask(&with(Some(&other)), "neverwas"),
                    route.missed(),
                    "as an id that never was"
                );
            }
            let read_only = route.ask(&with(Some(&reader)), &id);
            if route.reads() {
                assert_eq!(read_only, 200, "the read-only key reads");
            } else {
                assert_eq!(read_only, 403, "the read-only key changes nothing");
            }
            assert_eq!(
                server.named(&sandbox).says("cat /workspace/secret"),
                "canary-of-default\n",
                "it is unhurt"
            );
            let right = route.ask(&with(Some(server.key())), &id);
            assert!(matches!(right, 200..=204), "the right key: {right}");
            for key in [server.key(), &other] {
                let http = with(Some(key));
                server.ids(&http).iter().for_each(|id| {
                    http.delete(&format!("/v1/sandboxes/{id}"));
                });
            }
        });
    }
}

/// Revokes a key by its name in `isolet keys ls`.
fn revoke(server: &Server, key: &str) {
    let list = server.command(&["keys", "ls"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(!list.contains(key), "the list reveals no keys: {list}");
    let id = list
        .lines()
        .rev()
        .find_map(|line| line.split_whitespace().next())
        .expect("a key is listed");
    let done = server.command(&["keys", "revoke", id]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Promises: P0, G15, T2.
#[test]
fn nothing_of_one_tenant_is_seen_by_another() {
    let mut server = Server::start();
    let other = server.add_key(&["--tenant", "other"]);
    let other = Http::new(server.port(), Some(&other));
    let mine = server.sandbox_with(&json!({"id": "same"}));
    mine.command("s", "echo canary >/workspace/secret; echo canary >/tmp/secret");
    let theirs = isolet_kit::Sandbox { id: "same".into(), http: other.clone() };
    let said = theirs.exec("cat /workspace/* /tmp/*; ls /workspace /tmp; ps aux");
    assert!(!said.to_string().contains("canary"), "{said}");
    assert_eq!(server.ids(&other), ["same"]);
    theirs.delete();
    assert_eq!(mine.says("cat /workspace/secret"), "canary\n", "a delete ends the caller's own");
    let shell = mine.shell();
    let stolen = Shell::open(&other, &format!("/v1/sandboxes/same/shell?resume={}", shell.id));
    assert!(matches!(stolen, Err(404)), "only its tenant resumes a private shell");
    assert!(server.ids(&other).is_empty() || server.ids(&other) == ["same"]);
}

/// Promises: T7.
#[test]
fn t7_a_foreign_host_name_is_not_answered() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let mut rows = Rows::new();
    let port = server.port();
    for host in [
        "attacker.example".to_owned(),
        format!("attacker.example:{port}"),
        format!("localhost.attacker.example:{port}"),
        format!("127.0.0.1.attacker.example:{port}"),
        format!("169.254.169.254:{port}"),
        format!("x@127.0.0.1:{port}"),
    ] {
        rows.row(&host.clone(), || {
            let http = server.http().with("host", &host);
            for path in ["/health", "/v1/sandboxes", "/", "/v1/openapi.json"] {
                let status = http.get(path).status;
                assert!(matches!(status, 403 | 421), "{path}: {status}");
            }
            for socket in ["/shell", "/terminal"] {
                let host = format!("host: {host}\r\n");
                let status = raw_upgrade(&server, &sandbox.path(socket), &host);
                assert!(
                    status.starts_with("HTTP/1.1 421") || status.starts_with("HTTP/1.1 403"),
                    "{socket}: {status}"
                );
            }
        });
    }
    for origin in
        ["http://attacker.example", "null", "https://127.0.0.1.evil", "http://127.0.0.1:1"]
    {
        rows.row(&format!("origin {origin}"), || {
            assert_eq!(server.http().with("origin", origin).get("/v1/sandboxes").status, 403);
            let host = format!("host: 127.0.0.1:{port}\r\norigin: {origin}\r\n");
            let status = raw_upgrade(&server, &sandbox.path("/shell"), &host);
            assert!(status.starts_with("HTTP/1.1 403"), "{status}");
        });
    }
    rows.row("the server's own names", || {
        for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
            assert_eq!(server.http().with("host", &host).get("/v1/sandboxes").status, 200);
            let own = server.http().with("host", &host).with("origin", &format!("http://{host}"));
            assert_eq!(own.get("/v1/sandboxes").status, 200);
        }
    });
}

/// The status line of an upgrade with these headers.
fn raw_upgrade(server: &Server, path: &str, headers: &str) -> String {
    let request = format!(
        "GET {path} HTTP/1.1\r\n{headers}authorization: Bearer {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.key()
    );
    server.http().raw_status(request.as_bytes())
}

/// Promises: T12.
#[test]
fn heavy_t12_a_quota_cannot_be_exceeded_by_concurrent_requests() {
    let mut server = Options::new().config("[tenants.small]\nsandboxes_max = 10\n").start();
    let key = server.add_key(&["--tenant", "small"]);
    let http = Http::new(server.port(), Some(&key));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..100)
            .map(|n| {
                let http = &http;
                scope.spawn(move || match n % 2 {
                    0 => http.post("/v1/sandboxes", &json!({})).status,
                    _ => {
                        http.post(&format!("/v1/sandboxes/n{n}/exec"), &json!({"command": ":"}))
                            .status
                    }
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().expect("it is answered")).collect()
    });
    let made = statuses.iter().filter(|status| matches!(status, 200 | 201)).count();
    assert_eq!((made, server.ids(&http).len()), (10, 10), "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 201 | 429)), "{statuses:?}");
    let first = server.ids(&http)[0].clone();
    http.delete(&format!("/v1/sandboxes/{first}"));
    http.post("/v1/sandboxes", &json!({})).expect(201);
    server.healthy();
}
