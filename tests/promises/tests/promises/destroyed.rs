//! The answers to calls whose sandbox or session is deleted while they run.
//!
//! A command whose sandbox was deleted was once answered with 503 `agent_lost` and a hint to retry:
//! a client that did so created a new sandbox and ran the command there. A command whose session
//! was deleted was answered as if it had ended normally.

use isolet_kit::{
    Http, Message, Reply, Rows, SOON, Sandbox, Server, Socket, Stream, Value, json, one, wait_until,
};
use std::io::Read as _;
use std::thread::JoinHandle;

/// Creates a file to signal that it runs, and continues.
const RUNS: &str = "touch /workspace/runs; sleep 1000";

fn posted(sandbox: &Sandbox, rest: &str, body: Value) -> JoinHandle<Reply> {
    let sandbox = sandbox.clone();
    let rest = rest.to_owned();
    std::thread::spawn(move || sandbox.post(&rest, &body))
}

/// Waits until that file exists.
fn runs(sandbox: &Sandbox) {
    let path = sandbox.path("/files/runs");
    wait_until("it runs", SOON, || (sandbox.http.get(&path).status == 200).then_some(()));
}

#[track_caller]
fn refused(reply: Reply, code: &str) {
    assert_eq!((reply.status, reply.error().as_str()), (409, code), "{}", reply.text());
    assert!(reply.header("retry-after").is_none(), "the error is not retryable");
}

/// The last event of a stream.
#[track_caller]
fn last(stream: &mut Stream) -> (String, Value) {
    let mut last = (String::new(), Value::Null);
    while let Some(event) = stream.event() {
        last = (event.name, event.data.parse().unwrap_or(Value::Null));
    }
    last
}

#[track_caller]
fn ends_with(stream: &mut Stream, code: &str) {
    let (name, data) = last(stream);
    assert_eq!((name.as_str(), &data["error"]), ("error", &json!(code)), "{data}");
}

/// Reads a socket to its end: the text frames, and the code and reason of the close frame.
fn rest(socket: &mut Socket) -> (Vec<Value>, Option<(u16, String)>) {
    let mut frames = Vec::new();
    while let Ok(message) = socket.read() {
        match message {
            Message::Text(text) => frames.extend(text.parse::<Value>()),
            Message::Close(frame) => {
                let frame = frame.map(|frame| (u16::from(frame.code), frame.reason.to_string()));
                return (frames, frame);
            }
            _ => {}
        }
    }
    (frames, None)
}

fn away(reason: &str) -> Option<(u16, String)> {
    Some((1001, reason.to_owned()))
}

/// Promises: B9.
#[test]
fn f45_a_call_in_a_deleted_sandbox_gets_a_permanent_error() {
    let server = Server::start();
    let mut rows = Rows::new();
    let calls = [
        ("exec", "/exec", json!({"command": RUNS})),
        ("exec in a session", "/exec", json!({"command": RUNS, "session": "dev"})),
        ("a command of a session", "/sessions/dev/exec", json!({"command": RUNS})),
        ("a context", "/contexts/bash/run", json!({"code": RUNS})),
        (
            "a Python context",
            "/contexts/python/run",
            json!({"code": "import time\nopen('/workspace/runs', 'w')\ntime.sleep(1000)"}),
        ),
    ];
    for (name, path, body) in calls {
        rows.row(name, || {
            let sandbox = server.sandbox();
            let call = posted(&sandbox, path, body.clone());
            runs(&sandbox);
            sandbox.delete();
            refused(call.join().expect("it is answered"), "sandbox_destroyed");
            sandbox.http.get(&sandbox.path("")).expect(404);
        });
        rows.row(&format!("{name}, as events"), || {
            let sandbox = server.sandbox();
            let mut events = sandbox.http.events(&sandbox.path(path), &body);
            runs(&sandbox);
            sandbox.delete();
            ends_with(&mut events, "sandbox_destroyed");
            sandbox.http.get(&sandbox.path("")).expect(404);
        });
    }
    rows.row("a queued command", || {
        let sandbox = server.sandbox();
        let first = posted(&sandbox, "/sessions/dev/exec", json!({"command": RUNS}));
        runs(&sandbox);
        // The head of the answer arrives once the command was sent to the shell.
        let path = sandbox.path("/sessions/dev/exec");
        let mut queued = sandbox.http.events(&path, &json!({"command": "echo more"}));
        sandbox.delete();
        refused(first.join().expect("it is answered"), "sandbox_destroyed");
        ends_with(&mut queued, "sandbox_destroyed");
    });
    rows.row("the log of a process", || {
        let sandbox = server.sandbox();
        let process = json!({"id": "web", "argv": ["sleep", "1000"]});
        sandbox.post("/processes", &process).expect(201);
        let http = sandbox.http.with("accept", "text/event-stream");
        let path = sandbox.path("/processes/web/logs");
        let mut log = http.try_open("GET", &path, None).expect("an answer");
        sandbox.delete();
        ends_with(&mut log, "sandbox_destroyed");
    });
    rows.row("a wait for a port", || {
        let sandbox = server.sandbox();
        let silent = "import socket, time\n\
                      listener = socket.create_server(('127.0.0.1', 8000))\n\
                      held = listener.accept()\nopen('/workspace/runs', 'w')\ntime.sleep(1000)";
        let process = json!({"id": "web", "argv": ["python3", "-c", silent]});
        sandbox.post("/processes", &process).expect(201);
        sandbox.await_port(8000);
        let spec = json!({"port": {"port": 8000, "path": "/"}, "timeout_ms": 60_000});
        let waiting = posted(&sandbox, "/processes/web/wait", spec);
        runs(&sandbox);
        sandbox.delete();
        refused(waiting.join().expect("it is answered"), "sandbox_destroyed");
    });
    rows.row("a watch of files", || {
        let sandbox = server.sandbox();
        let path = sandbox.path("/files?watch=1");
        let http = sandbox.http.with("accept", "text/event-stream");
        let mut watch = http.try_open("GET", &path, None).expect("an answer");
        assert_eq!(watch.event().map(|event| event.name).as_deref(), Some("watching"));
        sandbox.delete();
        ends_with(&mut watch, "sandbox_destroyed");
    });
    rows.row("a request to a port", || {
        let sandbox = server.sandbox();
        sandbox.listen(8000);
        let http = sandbox.http.clone();
        let path = sandbox.path("/ports/8000/never");
        let call = std::thread::spawn(move || http.get(&path));
        wait_until("it was asked", SOON, || (sandbox.says("cat /tmp/asked") == "x").then_some(()));
        sandbox.delete();
        refused(call.join().expect("it is answered"), "sandbox_destroyed");
    });
    drop(rows);
    server.healthy();
}

/// Promises: B9.
#[test]
fn f45_a_socket_into_a_deleted_sandbox_is_closed_with_the_reason() {
    let server = Server::start();
    let mut rows = Rows::new();
    for path in ["/shell", "/shell?session=dev", "/shell?frames=binary"] {
        rows.row(path, || {
            let sandbox = server.sandbox();
            let mut socket = sandbox.socket(path).expect("a socket");
            let run = json!({"type": "shell_run", "id": "a", "command": RUNS}).to_string();
            socket.send(Message::text(run)).expect("sent");
            runs(&sandbox);
            sandbox.delete();
            let (frames, close) = rest(&mut socket);
            let reported = frames.last().cloned().unwrap_or_default();
            assert_eq!(reported["type"], "shell_closed", "{frames:?}");
            assert_eq!(reported["error"], "sandbox_destroyed", "{reported}");
            assert_eq!(close, away("sandbox_destroyed"));
        });
    }
    for path in ["/terminal", "/terminal?session=dev&events=1"] {
        rows.row(path, || {
            let sandbox = server.sandbox();
            let mut socket = sandbox.socket(path).expect("a socket");
            let run = format!("{RUNS}\r").into_bytes();
            socket.send(Message::binary(run)).expect("sent");
            runs(&sandbox);
            sandbox.delete();
            let (frames, close) = rest(&mut socket);
            assert_eq!(
                frames.last().map(|reported| &reported["type"]),
                Some(&json!("exit")),
                "{frames:?}"
            );
            assert_eq!(close, away("sandbox_destroyed"));
        });
    }
    for path in ["/tcp/8000", "/tcp/8000?half=1"] {
        rows.row(path, || {
            let sandbox = server.sandbox();
            sandbox.listen(8000);
            let mut socket = sandbox.socket(path).expect("a socket");
            sandbox.delete();
            assert_eq!(rest(&mut socket).1, away("sandbox_destroyed"));
        });
    }
    drop(rows);
    server.healthy();
}

/// A client of Cloudflare's bridge knows only one shape of failure.
/// Promises: B9.
#[test]
fn f45_a_dialect_reports_a_deleted_sandbox_in_its_own_format() {
    let server = Server::start();
    let made = server.http().post("/v1/sandbox", &json!({})).json();
    let sandbox = server.named(made["id"].as_str().expect("an id"));
    let path = format!("/v1/sandbox/{}/exec", sandbox.id);
    let command = json!({"argv": ["sh", "-c", RUNS]});
    let mut events = sandbox.http.events(&path, &command);
    assert_eq!(events.status, 200);
    runs(&sandbox);
    sandbox.delete();
    let (name, data) = last(&mut events);
    assert_eq!((name.as_str(), &data["code"]), ("error", &json!("sandbox_destroyed")), "{data}");
    server.healthy();
}

fn make(http: &Http, sandbox: &Sandbox, spec: &Value) {
    http.post(&sandbox.path("/sessions"), spec).expect(201);
}

/// Promises: P5.
#[test]
fn a_command_whose_session_is_deleted_gets_that_error() {
    let (server, sandbox) = one();
    let running = json!({"command": "touch /workspace/part/runs; sleep 1000"});
    let at = sandbox.path("/files/part/runs");
    let runs = || {
        wait_until("it runs", SOON, || (sandbox.http.get(&at).status == 200).then_some(()));
        sandbox.http.delete(&at).expect(204);
    };
    let session = sandbox.path("/sessions/dev");
    let end = || sandbox.http.delete(&session).expect(204);
    let exec = format!("{session}/exec");
    sandbox.exec("mkdir part");
    let mut rows = Rows::new();
    let parts = json!({"id": "dev", "file_access": {"write": ["part"]}});
    for (name, spec) in [("a session", json!({"id": "dev"})), ("a session with a scope", parts)] {
        rows.row(name, || {
            make(&sandbox.http, &sandbox, &spec);
            let call = posted(&sandbox, "/sessions/dev/exec", running.clone());
            runs();
            let mut queued = sandbox.http.events(&exec, &json!({"command": "echo more"}));
            end();
            refused(call.join().expect("it is answered"), "session_ended");
            ends_with(&mut queued, "session_ended");
            sandbox.http.get(&session).expect(404);
        });
        rows.row(&format!("{name}, as events"), || {
            make(&sandbox.http, &sandbox, &spec);
            let mut events = sandbox.http.events(&exec, &running);
            runs();
            end();
            ends_with(&mut events, "session_ended");
        });
        rows.row(&format!("{name}, and one of the same id"), || {
            make(&sandbox.http, &sandbox, &spec);
            assert_eq!(sandbox.command("dev", "echo on")["stdout"], "on\n");
            end();
        });
    }
    drop(rows);
    server.healthy();
}

/// The end of a truncated body carries no reason; the next read does.
/// Promises: B9.
#[test]
fn f45_a_download_from_a_deleted_sandbox_is_cut_off() {
    let (server, sandbox) = one();
    sandbox.exec("head -c 64M /dev/zero >large");
    let path = sandbox.path("/files/large");
    let mut reply = sandbox.http.try_open("GET", &path, None).expect("an answer");
    reply.body.read_exact(&mut [0; 1000]).expect("bytes");
    sandbox.delete();
    let mut rest = Vec::new();
    let read = reply.body.read_to_end(&mut rest);
    assert!(read.is_err() || rest.len() + 1000 < 64 << 20, "it was read to its end");
    sandbox.http.get(&path).expect(404);
    server.healthy();
}
