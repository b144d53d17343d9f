//! The audit log: what it contains, what it does not contain, and who can read it.

use isolet_kit::{Http, SOON, Server, Shell, Value, json, wait_until};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

fn entries(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn log(http: &Http, query: &str) -> Vec<Value> {
    entries(&http.get(&format!("/v1/audit{query}")).expect(200).text())
}

fn events(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["event"].as_str().expect("a name")).collect()
}

/// The exit code and the output of `isolet audit …`.
fn audit(server: &Server, args: &[&str]) -> (i32, String) {
    let done = server.command(&[&["audit"], args].concat());
    let said = [done.stdout, done.stderr].concat();
    (done.status.code().expect("exits"), String::from_utf8(said).expect("text"))
}

fn segment(server: &Server) -> PathBuf {
    server.data().join("audit/tenants/default/00000000000000000001.ndjson")
}

/// Promises: T17.
#[test]
fn t17_the_audit_log_names_who_did_what_from_where_and_no_secret() {
    let mut server = Server::start();
    let key = server.add_key(&["--label", "ci"]);
    let http = Http::new(server.port(), Some(&key));
    let made = http.post("/v1/sandboxes", &json!({"id": "box", "env": {"TOKEN": "hidden-1"}}));
    made.expect(201);
    let exec = json!({"command": "echo hidden-2; : hidden-3", "env": {"A": "hidden-4"}});
    http.post("/v1/sandboxes/box/sessions/dev/exec", &exec).expect(200);
    http.send("PUT", "/v1/sandboxes/box/files/a%0Ab%1B%5B2J", Some(b"hidden-5")).expect(201);
    http.patch("/v1/sandboxes/box", &json!({"metadata": {"a": "hidden-6"}})).expect(200);
    http.get("/v1/sandboxes/box").expect(200);
    Shell::open(&http, "/v1/sandboxes/box/shell").expect("opens").close();
    let ticket = json!({"sandbox": "box", "use": "shell"});
    let ticket = http.post("/v1/tickets", &ticket).expect(201).json()["ticket"].clone();
    let ticket = ticket.as_str().expect("a ticket");
    let stranger = Http::new(server.port(), None);
    let opened = Shell::open(&stranger, &format!("/v1/sandboxes/box/shell?ticket={ticket}"));
    opened.expect("opens").close();
    http.delete("/v1/sandboxes/box").expect(200);
    let made = http.post("/v1/keys", &json!({"label": "other"})).expect(201).json();
    let other = made["secret"].as_str().expect("a secret");
    let all = http.get("/v1/audit").expect(200).text();
    let entries = entries(&all);
    let own: Vec<_> = entries.iter().filter(|one| !one["data"]["key"].is_null()).collect();
    let names: Vec<_> = own.iter().map(|one| one["event"].as_str().expect("a name")).collect();
    let order = ["sandbox.create", "exec.start", "file.write", "sandbox.change", "shell.open"];
    assert_eq!(names[..5], order);
    assert_eq!(names[5..], ["ticket.create", "shell.open", "sandbox.destroy", "key.create"]);
    assert_eq!(own[8]["data"]["key_id"], made["id"], "{}", own[8]);
    assert!(own.iter().all(|one| one["data"]["from"] == "127.0.0.1"), "{own:?}");
    let id = own[0]["data"]["key"].as_str().expect("an id");
    assert!(id.starts_with("key_") && own.iter().all(|one| one["data"]["key"] == id));
    assert_eq!(own[1]["data"]["session"], "dev");
    assert_eq!(own[2]["data"]["path"], "a\nb\u{1b}[2J", "and it is still one line");
    assert!(events(&entries).contains(&"sandbox.created"));
    assert!(all.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)));
    for secret in ["hidden", key.as_str(), ticket, other] {
        assert!(!all.contains(secret), "{secret}");
    }
    assert_eq!(audit(&server, &["verify"]).0, 0);
}

/// Promises: T17.
#[test]
fn t17_a_tenant_reads_its_own_audit_log_alone() {
    let mut server = Server::start();
    let key = server.add_key(&["--tenant", "other"]);
    let own = server.http();
    let other = Http::new(server.port(), Some(&key));
    let id = server.sandbox().id;
    assert!(!log(&own, "").is_empty());
    assert_eq!(log(&other, ""), [] as [Value; 0]);
    assert_eq!(log(&other, &format!("?sandbox={id}")), [] as [Value; 0]);
    other.get(&format!("/v1/runs/{id}/audit")).expect(404);
    own.get("/v1/runs/never-was/audit").expect(404);
    for bad in ["..%2F..%2Fdefault", "%2e%2e", "a%0Ab", ""] {
        own.get(&format!("/v1/audit?sandbox={bad}")).expect(400);
    }
    own.get("/v1/audit?tenant=other").expect(400);
    // This sandbox of the same name belongs to another tenant.
    other.post(&format!("/v1/sandboxes/{id}/exec"), &json!({"command": ":"})).expect(200);
    let theirs = log(&other, &format!("?sandbox={id}"));
    assert!(theirs.iter().all(|one| one["data"]["key"] != "ISOLET_API_KEY"), "{theirs:?}");
    assert_eq!(events(&theirs), ["exec.start", "sandbox.created"]);
}

/// Promises: T17.
#[test]
fn t17_a_program_is_in_the_audit_log_while_it_runs() {
    let server = Server::start();
    let http = server.http();
    let id = server.sandbox().id;
    let body = json!({"command": "sleep 4247"}).to_string();
    let key = server.key();
    let port = server.port();
    let length = body.len();
    let mut stream = http.connect();
    let text = format!(
        "POST /v1/sandboxes/{id}/exec HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\ncontent-type: application/json\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).expect("takes it");
    wait_until("the entry", SOON, || {
        events(&log(&http, &format!("?sandbox={id}"))).contains(&"exec.start").then_some(())
    });
    http.post(&format!("/v1/sandboxes/{id}/exec"), &json!({"command": 1})).expect(400);
    let all = log(&http, &format!("?sandbox={id}"));
    assert_eq!(events(&all)[2..], ["exec.start", "exec.start", "exec.refused"]);
    assert_eq!(all[4]["data"]["status"], 400);
}

/// Promises: T19.
#[test]
fn a_killed_server_leaves_a_valid_audit_log() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    for _ in 0..20 {
        sandbox.exec(":");
    }
    assert!(!events(&log(&server.http(), "")).contains(&"audit.repaired"));
    server.kill();
    assert_eq!(audit(&server, &["verify"]).0, 0, "as it lies");
    // As if the server had been killed within a line.
    let mut text = fs::read(segment(&server)).expect("is there");
    text.extend_from_slice(b"{\"seq\":");
    fs::write(segment(&server), text).expect("writes");
    server.launch();
    server.wait_until_ready();
    sandbox.exec(":");
    let all = log(&server.http(), "");
    assert!(events(&all).contains(&"audit.repaired"), "{all:?}");
    let (code, said) = audit(&server, &["verify"]);
    assert_eq!(code, 0, "{said}");
}

/// Promises: T19.
#[test]
fn t17_the_command_line_says_which_entry_was_changed() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.exec(":");
    sandbox.exec(":");
    // A client of the server also gets entries that are not yet written.
    log(&server.http(), "");
    let (code, whole) = audit(&server, &["show"]);
    assert_eq!(code, 0);
    let file = server.data().join("export.ndjson");
    let check = |lines: &[&str]| {
        fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>())
            .expect("writes");
        audit(&server, &["verify", file.to_str().expect("text")])
    };
    let lines: Vec<_> = whole.lines().collect();
    assert!(lines.len() >= 4, "{whole}");
    assert_eq!(check(&lines).0, 0);
    let forged = lines[1].replace("127.0.0.1", "127.0.0.2");
    let (code, said) = check(&[&[lines[0], &forged], &lines[2..]].concat());
    assert!(code == 1 && said.contains("line 2 (entry 2) was changed"), "{said}");
    let (code, said) = check(&[&lines[..2], &lines[3..]].concat());
    assert!(code == 1 && said.contains("entry 3 is missing"), "{said}");
    let (code, said) = check(&[&lines[..1], &[lines[2], lines[1]], &lines[3..]].concat());
    assert!(code == 1 && said.contains("(entry 2) follows a later entry"), "{said}");
    let (code, said) = check(&lines[..lines.len() - 1]);
    assert!(code == 1 && said.contains("the log continues"), "{said}");
    // The same in the server's own file, permanently.
    server.kill();
    let text = fs::read_to_string(segment(&server)).expect("is there");
    fs::write(segment(&server), text.replacen("exec.start", "exec.stark", 1)).expect("writes");
    server.launch();
    server.wait_until_ready();
    sandbox.exec(":");
    log(&server.http(), "");
    let (code, said) = audit(&server, &["verify"]);
    assert!(code == 1 && said.contains("was changed"), "{said}");
}
