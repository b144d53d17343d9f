//! Dialects of other systems: every call of the published table, and Cloudflare's bridge.

use isolet_kit::{Http, Options, Reply, Rows, SOON, Sandbox, Server, Value, json, wait_until};
use std::collections::BTreeSet;
use std::fs;

/// One line of the table in `docs/dialects.md`.
struct Line {
    method: String,
    path: String,
    how: String,
    why: String,
}

fn table() -> Vec<Line> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dialects.md");
    let text = fs::read_to_string(path).expect("is committed");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    let rows = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter(|cells| cells.len() == 4 && cells[1].starts_with('`'))
        .map(|cells| Line {
            method: cells[0].to_owned(),
            path: cells[1].trim_matches('`').to_owned(),
            how: cells[2].to_owned(),
            why: cells[3].to_owned(),
        })
        .collect()
}

/// Promises: D2.
#[test]
fn every_call_of_the_dialects_table_is_answered_as_documented() {
    let server = Server::start();
    let http = server.http();
    let id = bridge(&http).id;
    let session = http.post("/v1/sessions", &json!({"sandbox_id": id})).expect(201).json();
    let session = session["id"].as_str().expect("an id").to_owned();
    let mut rows = Rows::new();
    // Calls that end something come last.
    let (ends, others): (Vec<_>, Vec<_>) =
        table().into_iter().partition(|line| line.method == "DELETE");
    assert!(others.len() > 30, "{} lines", others.len());
    for Line { method, path, how, why } in others.into_iter().chain(ends) {
        rows.row(&format!("{method} {path}"), || {
            let session = if path.starts_with("/v1/sessions") { &session } else { "s" };
            let at = path.replace("{id}", &id).replace("{sid}", session);
            let at = at
                .replace("{port}", "8000")
                .replace("{path}", "workspace/a")
                .replace("{name}", "profile")
                .replace("{snapshot}", "none");
            let reply = http.send(&method, &at, None);
            let code = reply.status;
            match how.as_str() {
                "501" => {
                    assert_eq!(code, 501, "{}", reply.text());
                    assert!(reply.text().len() > 40, "with a reason: {}", reply.text());
                    assert!(!why.is_empty(), "and one is in the table");
                }
                "served" | "partly" => {
                    assert!(how == "served" || !why.is_empty(), "missing features are listed");
                    let text = reply.text();
                    assert!(!matches!(code, 405 | 500 | 501), "{code} {text}");
                    assert!(!text.contains("\"no_route\""), "{text}");
                }
                other => panic!("{other} is neither served, partly nor 501"),
            }
        });
    }
}

/// Promises: D2.
#[test]
fn every_call_of_a_dialect_is_in_the_table() {
    let server = Server::start();
    let document = server.http().get("/v1/openapi.json").expect(200).json();
    let known: BTreeSet<_> =
        table().into_iter().map(|line| (line.method.to_lowercase(), line.path)).collect();
    let mut missing = Vec::new();
    for (path, calls) in document["paths"].as_object().expect("paths") {
        for (method, call) in calls.as_object().expect("calls") {
            let tag = call["tags"][0].as_str().expect("a tag");
            let dialect = ["cloudflare", "isorun", "pokee"].contains(&tag);
            if dialect && !known.contains(&(method.clone(), path.clone())) {
                missing.push(format!("{method} {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "not in docs/dialects.md: {missing:?}");
}

/// A sandbox that the bridge has created.
fn bridge(http: &Http) -> Sandbox {
    let made = http.send("POST", "/v1/sandbox", None).expect(200).json();
    let id = made["id"].as_str().expect("an id").to_owned();
    let shape = id.len() == 26 && id.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
    assert!(shape, "{id}");
    Sandbox { id, http: http.clone() }
}

fn at(sandbox: &Sandbox, rest: &str) -> String {
    format!("/v1/sandbox/{}{rest}", sandbox.id)
}

/// The events of a command: their names and data.
fn exec(http: &Http, sandbox: &Sandbox, body: &Value) -> Vec<(String, String)> {
    let mut stream = http.events(&at(sandbox, "/exec"), body);
    assert_eq!(stream.status, 200);
    let mut all = Vec::new();
    while let Some(event) = stream.event() {
        all.push((event.name, event.data));
    }
    all
}

fn ended(code: i32) -> (String, String) {
    ("exit".to_owned(), json!({ "exit_code": code }).to_string())
}

/// Promises: D3.
#[test]
fn the_bridge_reports_a_command_as_events() {
    let server = Server::start();
    let http = server.http();
    let sandbox = bridge(&http);
    let mut rows = Rows::new();
    let said = |stream: &str, b64: &str| (stream.to_owned(), b64.to_owned());
    rows.row("bytes of both streams, then the exit", || {
        sandbox.says("mkfifo /tmp/go");
        let argv = ["bash", "-c", r"printf 'a\377'; read x </tmp/go; echo b >&2; exit 7"];
        let mut stream = http.events(&at(&sandbox, "/exec"), &json!({ "argv": argv }));
        let mut next = || stream.event().map(|event| (event.name, event.data));
        assert_eq!(next(), Some(said("stdout", "Yf8=")));
        sandbox.says("echo >/tmp/go");
        assert_eq!([next(), next(), next()], [Some(said("stderr", "Ygo=")), Some(ended(7)), None]);
    });
    rows.row("arguments are passed literally", || {
        let all = exec(&http, &sandbox, &json!({"argv": ["printf", "%s|", "it's", "$HOME", ""]}));
        assert_eq!(all, [said("stdout", "aXQnc3wkSE9NRXx8"), ended(0)]);
    });
    rows.row("something that does not exist", || {
        let all = exec(&http, &sandbox, &json!({"argv": ["no such program"]}));
        assert_eq!((all[0].0.as_str(), all.last()), ("stderr", Some(&ended(127))));
    });
    rows.row("a timeout is an error", || {
        let all = exec(&http, &sandbox, &json!({"argv": ["sleep", "60"], "timeout_ms": 100}));
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].0 == "error" && all[0].1.contains("exec_error"), "{all:?}");
    });
    rows.row("without a session no state persists, in a session it does", || {
        let pwd = json!({"argv": ["pwd"]});
        exec(&http, &sandbox, &json!({"argv": ["cd", "/tmp"]}));
        assert_eq!(exec(&http, &sandbox, &pwd)[0], said("stdout", "L3dvcmtzcGFjZQo="));
        let own = http.with("session-id", "dev");
        exec(&own, &sandbox, &json!({"argv": ["cd", "/tmp"]}));
        assert_eq!(exec(&own, &sandbox, &pwd)[0], said("stdout", "L3RtcAo="));
    });
    rows.row("a directory of the workspace, or none", || {
        exec(&http, &sandbox, &json!({"argv": ["mkdir", "-p", "src"]}));
        for cwd in ["src", "/workspace/src", "/workspace/../workspace/./src/"] {
            let all = exec(&http, &sandbox, &json!({"argv": ["pwd"], "cwd": cwd}));
            assert_eq!(all[0], said("stdout", "L3dvcmtzcGFjZS9zcmMK"), "{cwd}");
        }
        for cwd in ["/tmp", "..", "/workspace/../etc", "/workspaces"] {
            let reply = http.post(&at(&sandbox, "/exec"), &json!({"argv": ["pwd"], "cwd": cwd}));
            assert_eq!(code(reply.expect(403)), "invalid_request", "{cwd}");
        }
    });
    rows.row("refusals use its error format", || {
        for body in
            [json!({}), json!({"argv": []}), json!({"argv": "ls"}), json!({"argv": ["a"], "x": 1})]
        {
            let reply = http.post(&at(&sandbox, "/exec"), &body).expect(400);
            assert_eq!(code(reply), "invalid_request", "{body}");
        }
        let named = http.with("session-id", "../x");
        let reply = named.post(&at(&sandbox, "/exec"), &json!({"argv": ["ls"]})).expect(400);
        assert_eq!(code(reply), "invalid_request");
        let stranger = Http::new(server.port(), Some("nobody"));
        assert_eq!(code(stranger.get(&at(&sandbox, "/running")).expect(401)), "unauthorized");
    });
}

fn code(reply: Reply) -> String {
    let body = reply.json();
    assert!(body["error"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    body["code"].as_str().expect("a code").to_owned()
}

/// Promises: D3.
#[test]
fn the_bridge_reads_and_writes_within_the_workspace() {
    let server = Server::start();
    let http = server.http();
    let sandbox = bridge(&http);
    let file = |path: &str| at(&sandbox, &format!("/file/{path}"));
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    let put = |path: &str| http.send("PUT", &file(path), Some(&bytes));
    assert_eq!(put("workspace/a%20b/%C3%BC.bin").expect(200).json(), json!({"ok": true}));
    assert_eq!(put("workspace/a%20b/%C3%BC.bin").expect(200).json(), json!({"ok": true}), "again");
    assert_eq!(http.get(&file("workspace/a%20b/%C3%BC.bin")).expect(200).body, bytes);
    for path in ["etc/passwd", "workspace/../etc/passwd", "workspace/%2e%2e/etc/x", "%2Fetc/x"] {
        assert_eq!(code(put(path).expect(403)), "invalid_request", "{path}");
        assert_eq!(code(http.get(&file(path)).expect(403)), "invalid_request", "{path}");
    }
    assert_eq!(code(http.get(&file("workspace/none")).expect(404)), "workspace_read_not_found");
    let elsewhere = "/v1/sandbox/nothere/file/workspace/a";
    assert_eq!(code(http.get(elsewhere).expect(404)), "workspace_read_not_found");
}

/// Promises: D3.
#[test]
fn the_bridge_saves_and_restores_a_workspace() {
    let server = Server::start();
    let http = server.http();
    let sandbox = bridge(&http);
    sandbox.exec("mkdir -p a/b c; echo 1 >a/b/f; echo 2 >c/f; echo 3 >cc; ln -s a l; chmod 640 cc");
    let pack = |query: &str| http.send("POST", &at(&sandbox, &format!("/persist{query}")), None);
    let all = pack("").expect(200).body;
    let some = pack("?excludes=a/b,./c").expect(200).body;
    let into =
        |sandbox: &Sandbox, bytes: &[u8]| http.send("POST", &at(sandbox, "/hydrate"), Some(bytes));
    let list = "find . -mindepth 1 | sort | tr '\\n' ' '; stat -c %a cc";
    let whole = bridge(&http);
    assert_eq!(into(&whole, &all).expect(200).json(), json!({"ok": true}));
    assert_eq!(whole.says(list), "./a ./a/b ./a/b/f ./c ./c/f ./cc ./l 640\n");
    let part = bridge(&http);
    into(&part, &some).expect(200);
    assert_eq!(part.says(list), "./a ./cc ./l 640\n");
    let empty = bridge(&http);
    let nothing = http.send("POST", &at(&empty, "/persist"), None).expect(200).body;
    into(&empty, &nothing).expect(200);
    for bad in [&b""[..], b"no archive"] {
        assert_eq!(code(into(&empty, bad).expect(400)), "invalid_request");
    }
    for bad in ["..", "a/../b", "/etc"] {
        assert_eq!(code(pack(&format!("?excludes={bad}")).expect(400)), "invalid_request");
    }
    // Files that are too deep were once missing from an archive that was reported as a success.
    sandbox.says("n=$(printf n%.0s {1..240}); mkdir deep; cd deep; for _ in {1..20}; do mkdir $n; cd $n; done");
    assert_eq!(pack("").status, 413);
    pack("?excludes=deep").expect(200);
}

/// Promises: D3.
#[test]
fn the_bridge_creates_and_deletes_sandboxes_and_sessions() {
    let server = Server::start();
    let http = server.http();
    let sandbox = bridge(&http);
    let running = |id: &str| http.get(&format!("/v1/sandbox/{id}/running")).expect(200).json();
    assert_eq!(
        (running(&sandbox.id), running("nothere")),
        (json!({"running": true}), json!({"running": false}))
    );
    let body = json!({"id": "dev", "cwd": "/tmp", "env": {"A": "b"}});
    let made = http.post(&at(&sandbox, "/session"), &body).expect(200).json();
    assert_eq!(made, json!({"id": "dev"}));
    assert_eq!(sandbox.command("dev", "echo $A $PWD")["stdout"], "b /tmp\n");
    let other = http.post(&at(&sandbox, "/session"), &json!({})).expect(200).json();
    let other = other["id"].as_str().expect("an id").to_owned();
    assert!(other.starts_with("sess_"), "{other}");
    let gone = http.delete(&at(&sandbox, "/session/dev")).expect(200).json();
    assert_eq!((&gone["success"], &gone["sessionId"]), (&json!(true), &json!("dev")));
    http.delete(&at(&sandbox, "/session/dev")).expect(404);
    sandbox.post("/sleep", &json!({})).expect(200);
    assert_eq!(running(&sandbox.id), json!({"running": true}), "its files are there");
    for _ in 0..2 {
        http.delete(&at(&sandbox, "")).expect(204);
        assert_eq!(running(&sandbox.id), json!({"running": false}));
    }
    let stats = http.get("/v1/pool/stats").expect(200).json();
    assert_eq!(stats["assigned"], 0, "{stats}");
    assert_eq!(http.get("/health").expect(200).json()["ok"], true);
}

/// A port behind an address that needs no key until the tunnel is closed.
/// Promises: D3.
#[test]
fn a_tunnel_of_the_bridge_leads_to_its_port_until_it_is_closed() {
    let server = Server::start();
    let http = server.http();
    let sandbox = bridge(&http);
    let at = format!("/v1/sandbox/{}/tunnel/8000", sandbox.id);
    let tunnel = http.post(&at, &json!({"name": "web"})).expect(200).json();
    assert_eq!((&tunnel["id"], &tunnel["port"]), (&json!("8000"), &json!(8000)));
    assert_eq!((&tunnel["name"], &tunnel["hostname"]), (&json!("web"), &json!("127.0.0.1")));
    let serve =
        json!({"command": "echo through > a; exec python3 -m http.server 8000", "id": "web"});
    sandbox.post("/processes", &serve).expect(201);
    let wait = json!({"port": {"port": 8000}});
    assert_eq!(sandbox.post("/processes/web/wait", &wait).expect(200).json()["outcome"], "met");
    let url = tunnel["url"].as_str().expect("an address");
    let path = &url[url.find("/v1/").expect("a path")..];
    let stranger = Http::new(http.port, None);
    assert_eq!(stranger.get(&format!("{path}a")).expect(200).text(), "through\n");
    for _ in 0..2 {
        http.delete(&at).expect(204);
        assert_eq!(stranger.get(&format!("{path}a")).status, 401);
    }
}

/// Promises: D3.
#[test]
fn the_warm_pool_can_be_renewed() {
    let server = Options::new().warm_pool(2).start();
    let http = server.http();
    let full = || {
        let stats = http.get("/v1/pool/stats").expect(200).json();
        let warm = &stats["warm"];
        let target = &stats["config"]["warmTarget"];
        (warm == target && *target != json!(0)).then(|| server.agents())
    };
    let before = wait_until("the warm pool is full", SOON, full);
    http.post("/v1/pool/shutdown-prewarmed", &Value::Null).expect(200);
    let other = || full().filter(|agents| agents.iter().all(|agent| !before.contains(agent)));
    wait_until("other sandboxes were created", SOON, other);
    bridge(&http);
}

/// Promises: D3.
#[test]
fn a_server_that_stops_empties_its_warm_pool() {
    let mut server = Options::new().warm_pool(8).start();
    // The warm pool is being filled at this point.
    wait_until("the warm pool holds one", SOON, || (!server.agents().is_empty()).then_some(()));
    server.stop();
    assert_eq!(server.agents(), Vec::<i32>::new());
}
