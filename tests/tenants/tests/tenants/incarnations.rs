//! A new sandbox with the id of a deleted one: it sees nothing of its predecessor, and no reference
//! to the predecessor leads to it.
//!
//! A reader of the new sandbox's events once got those of the old one up to its deletion, which
//! ended the stream; and a ticket to the old sandbox opened the new one.

use isolet_kit::{
    Http, Reply, Rows, SOON, Sandbox, Server, Shell, Stream, Terminal, Value, json, wait_until,
};

const ID: &str = "demo";

/// Deletes the sandbox; with `restart` the server is then killed and started again.
fn end(server: &mut Server, sandbox: &Sandbox, restart: bool) {
    sandbox.delete();
    if restart {
        server.restart();
    }
}

fn begin(server: &Server) -> Sandbox {
    server.sandbox_with(&json!({"id": ID}))
}

/// Runs the row once on the same server and once across a restart.
fn both(rows: &mut Rows, server: &mut Server, name: &str, test: impl Fn(&mut Server, bool)) {
    for restart in [false, true] {
        let name = if restart { format!("{name}, across a restart") } else { name.to_owned() };
        rows.row(&name, || test(&mut *server, restart));
        let _ = server.http().try_send("DELETE", &format!("/v1/sandboxes/{ID}"), None);
    }
}

fn follow(http: &Http, path: &str, last: u64) -> Stream {
    let http = http.with("last-event-id", &last.to_string());
    let stream = http.try_open("GET", path, None).expect("an answer");
    assert_eq!(stream.status, 200);
    stream
}

fn event(stream: &mut Stream) -> (String, Value) {
    let event = stream.event().expect("it goes on");
    (event.name, event.data.parse().unwrap_or(Value::Null))
}

/// Promises: E49.
#[test]
fn e49_the_next_sandbox_does_not_get_events_of_a_deleted_one() {
    let mut server = Server::start();
    let mut rows = Rows::new();
    for after in [false, true] {
        let name = if after { "and a restart of the server after" } else { "and its cursor" };
        both(&mut rows, &mut server, name, |server, restart| {
            let old = begin(server);
            let path = old.path("/events");
            let mut first = follow(&server.http(), &path, 0);
            old.exec("exit 3");
            let mut cursor = 0;
            let mut name = String::new();
            while name != "command_exited" {
                let (is, data) = event(&mut first);
                cursor = data["id"].as_u64().unwrap_or(cursor);
                name = is;
            }
            end(server, &old, restart);
            let new = begin(server);
            if after {
                server.restart();
            }
            for last in [0, cursor] {
                let mut own = follow(&server.http(), &path, last);
                new.exec("exit 4");
                loop {
                    let (name, data) = event(&mut own);
                    assert_ne!(name, "destroyed", "{data}");
                    assert!(data["code"] != 3, "{name} {data}");
                    if name == "command_exited" {
                        assert_eq!(data["code"], 4);
                        break;
                    }
                }
            }
            assert_eq!(new.info()["state"], "running");
        });
    }
}

fn ticket(http: &Http, spec: &Value) -> String {
    let made = http.post("/v1/tickets", spec).expect(201).json();
    made["ticket"].as_str().expect("a ticket").to_owned()
}

/// Promises: E49.
#[test]
fn e49_a_ticket_to_a_deleted_sandbox_opens_nothing() {
    let mut server = Server::start();
    let mut rows = Rows::new();
    let uses = [
        ("terminal", json!({"sandbox": ID, "use": "terminal"}), "/terminal"),
        ("shell", json!({"sandbox": ID, "use": "shell"}), "/shell"),
        (
            "shell of a session",
            json!({"sandbox": ID, "use": "shell", "session": "dev"}),
            "/shell?session=dev",
        ),
        ("tcp", json!({"sandbox": ID, "use": "port", "port": 8000}), "/tcp/8000"),
        ("port", json!({"sandbox": ID, "use": "port", "port": 8000}), "/ports/8000/upgrade"),
    ];
    for (name, spec, path) in uses {
        let open = |server: &Server, path: &str, ticket: &str| {
            let mark = if path.contains('?') { '&' } else { '?' };
            let path = format!("/v1/sandboxes/{ID}{path}{mark}ticket={ticket}");
            Terminal::open(&Http::new(server.port(), None), &path).map(drop)
        };
        both(&mut rows, &mut server, name, |server, restart| {
            let old = begin(server);
            old.listen(8000);
            let spare = ticket(&server.http(), &spec);
            let used = ticket(&server.http(), &spec);
            assert_ne!(open(server, path, &used), Err(401), "it opens the sandbox that it names");
            end(server, &old, restart);
            let new = begin(server);
            new.listen(8000);
            assert_eq!(open(server, path, &spare), Err(401));
            let own = ticket(&server.http(), &spec);
            assert_ne!(open(server, path, &own), Err(401), "a ticket for the new sandbox does");
        });
        rows.row(&format!("{name}, and it makes no other"), || {
            let old = begin(&server);
            let one = ticket(&server.http(), &spec);
            old.delete();
            let refused = open(&server, path, &one).expect_err("there is no sandbox");
            assert!(matches!(refused, 401 | 404), "{refused}");
            server.http().get(&old.path("")).expect(404);
        });
    }
    rows.row("a ticket from before the first opens it", || {
        let one = ticket(&server.http(), &json!({"sandbox": ID, "use": "shell"}));
        let path = format!("/v1/sandboxes/{ID}/shell?ticket={one}");
        let mut shell =
            Shell::open(&Http::new(server.port(), None), &path).expect("the client is admitted");
        shell.run("echo in").is("in\n", 0);
        server.named(ID).delete();
    });
}

/// Promises: E49.
#[test]
fn e49_an_idempotency_key_is_not_answered_for_a_deleted_sandbox() {
    let mut server = Server::start();
    let mut rows = Rows::new();
    let calls = [
        ("/sessions", json!({"id": "dev"})),
        ("/processes", json!({"argv": ["sleep", "1000"]})),
        ("/contexts", json!({"language": "bash"})),
    ];
    for (path, body) in calls {
        both(&mut rows, &mut server, path, |server, restart| {
            let made = |sandbox: &Sandbox| -> Reply {
                let http = sandbox.http.with("idempotency-key", "one");
                http.post(&sandbox.path(path), &body).expect(201)
            };
            let there = |sandbox: &Sandbox, reply: &Reply| {
                let id = reply.json()["id"].as_str().expect("an id").to_owned();
                sandbox.http.get(&sandbox.path(&format!("{path}/{id}"))).expect(200);
            };
            let old = begin(server);
            there(&old, &made(&old));
            assert_eq!(made(&old).header("idempotency-replayed"), Some("true"));
            end(server, &old, restart);
            let new = begin(server);
            let first = made(&new);
            assert_eq!(first.header("idempotency-replayed"), None, "it is created again");
            there(&new, &first);
            let again = made(&new);
            assert_eq!(again.header("idempotency-replayed"), Some("true"));
            assert_eq!(again.json()["id"], first.json()["id"]);
        });
    }
}

/// Promises: E49.
#[test]
fn e49_the_next_sandbox_sees_nothing_of_a_deleted_one() {
    let mut server = Server::start();
    let mut rows = Rows::new();
    both(&mut rows, &mut server, "files, recordings, processes, sessions", |server, restart| {
        let old = begin(server);
        old.exec("echo canary >/workspace/canary; echo canary >/var/tmp/canary");
        old.post("/sessions", &json!({"id": "dev"})).expect(201);
        let process = json!({"id": "web", "argv": ["sh", "-c", "echo canary; sleep 1000"]});
        old.post("/processes", &process).expect(201);
        let mut terminal = old.terminal("session=dev&record=1");
        terminal.line("echo 'c'anary", "canary\r\n");
        let place = terminal.place();
        let all = old.http.get(&old.path("/recordings")).expect(200).json();
        let recording = all[0]["id"].as_str().expect("an id").to_owned();
        let mut shell = old.shell();
        shell.run("echo canary").is("canary\n", 0);
        end(server, &old, restart);
        let new = begin(server);
        assert_eq!(new.says("ls /workspace /var/tmp"), "/var/tmp:\n\n/workspace:\n");
        let list = |path: &str| new.http.get(&new.path(path)).expect(200).json();
        assert_eq!(list("/recordings"), json!([]));
        assert_eq!(list("/processes"), json!([]));
        assert_eq!(list("/sessions").as_array().map(Vec::len), Some(1), "`default` alone");
        new.http.get(&new.path(&format!("/recordings/{recording}"))).expect(404);
        new.http.get(&new.path("/processes/web/logs")).expect(404);
        let mut back = new.terminal(&format!("session=dev&{place}"));
        back.line("echo 'o'wn", "own\r\n");
        assert!(!back.shown().contains("canary"), "{}", back.shown());
    });
    both(&mut rows, &mut server, "a private shell and its place", |server, restart| {
        let old = begin(server);
        let opened = |sandbox: &Sandbox, query: &str| {
            let mut socket = sandbox.socket(&format!("/shell?opened=1{query}"))?;
            let text = socket.read().expect("a frame").into_text().expect("text");
            Ok::<_, u16>(text.parse::<Value>().expect("JSON"))
        };
        let name = |reported: &Value| reported["shell"].as_str().expect("a name").to_owned();
        let private = name(&opened(&old, "").expect("a socket"));
        let shared = name(&opened(&old, "&session=dev").expect("a socket"));
        old.command("dev", "echo canary");
        end(server, &old, restart);
        let new = begin(server);
        assert_eq!(opened(&new, &format!("&resume={private}")).err(), Some(404));
        let back = opened(&new, &format!("&session=dev&resume={shared}&since=0,0,0"));
        assert_eq!(back.expect("a socket")["at"], "0,0,0", "nothing was written to it");
    });
    both(&mut rows, &mut server, "what it has used", |server, restart| {
        let old = begin(server);
        old.exec("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
        let used = |sandbox: &Sandbox| sandbox.info()["usage"]["cpu_ms"].as_f64().unwrap_or(0.0);
        wait_until("it is counted", SOON, || (used(&old) > 300.0).then_some(()));
        end(server, &old, restart);
        let new = begin(server);
        let before = used(&new);
        assert!(before < 300.0, "{before} ms");
    });
}
