//! No end is reported before the last byte of its output (F46): each call that reads both is tried
//! with many programs that write one line and end immediately.

use isolet_kit::{Sandbox, Start, Value, json, one, tries};

/// The output of each program.
const SAID: &str = "hello\n";

fn start(sandbox: &Sandbox) -> String {
    let body = json!({ "argv": ["echo", "hello"] });
    let begun = sandbox.post("/processes", &body).expect(201).json();
    begun["id"].as_str().expect("an id").to_owned()
}

fn forget(sandbox: &Sandbox, id: &str) {
    sandbox.http.delete(&sandbox.path(&format!("/processes/{id}"))).expect(204);
}

/// Promises: F46.
#[test]
fn f46_a_log_that_is_polled_says_exited_with_the_last_byte() {
    let (server, sandbox) = one();
    for turn in 0..tries(300, 100_000) {
        let id = start(&sandbox);
        let path = sandbox.path(&format!("/processes/{id}/logs"));
        let log = loop {
            let log = sandbox.http.get(&path).expect(200).json();
            if log["process"]["status"] != "running" {
                break log;
            }
        };
        let read = (&log["stdout"], &log["position"], &log["process"]["stdout_bytes"]);
        assert_eq!(read, (&json!(SAID), &json!(6), &json!(6)), "turn {turn}: {log}");
        forget(&sandbox, &id);
    }
    server.healthy();
}

/// Promises: F46.
#[test]
fn f46_a_process_that_is_seen_to_have_ended_has_its_whole_log() {
    let (server, sandbox) = one();
    for turn in 0..tries(200, 20_000) {
        let id = start(&sandbox);
        let at = |rest: &str| format!("/processes/{id}{rest}");
        while sandbox.http.get(&sandbox.path(&at(""))).expect(200).json()["status"] == "running" {}
        let log = sandbox.http.get(&sandbox.path(&at("/logs"))).expect(200).json();
        assert_eq!(log["stdout"], SAID, "turn {turn}: {log}");
        let spec = json!({"log": {"text": "hello"}, "timeout_ms": 1});
        let waited = sandbox.post(&at("/wait"), &spec).expect(200).json();
        assert_eq!(waited["outcome"], "met", "turn {turn}: {waited}");
        forget(&sandbox, &id);
    }
    server.healthy();
}

/// A wait that times out while its process ends must not report the end and deny the last line.
/// Promises: F46.
#[test]
fn f46_a_wait_that_times_out_knows_the_last_line_of_an_ended_process() {
    let (server, sandbox) = one();
    for turn in 0..tries(200, 20_000) {
        let body = json!({ "command": "sleep 0.003; echo hello" });
        let begun = sandbox.post("/processes", &body).expect(201).json();
        let id = begun["id"].as_str().expect("an id");
        let spec = json!({"log": {"text": "hello"}, "timeout_ms": 1 + turn % 8});
        let waited = sandbox.post(&format!("/processes/{id}/wait"), &spec).expect(200).json();
        let ended = waited["process"]["status"] == "exited";
        assert!(!ended || waited["outcome"] == "met", "turn {turn}: {waited}");
        forget(&sandbox, id);
    }
    server.healthy();
}

/// Promises: F46.
#[test]
fn f46_events_of_a_log_end_after_the_last_byte() {
    let (server, sandbox) = one();
    for turn in 0..tries(200, 20_000) {
        let id = start(&sandbox);
        let http = sandbox.http.with("accept", "text/event-stream");
        let path = sandbox.path(&format!("/processes/{id}/logs"));
        let mut stream = http.try_open("GET", &path, None).expect("an answer");
        let mut said = String::new();
        loop {
            let event = stream.event().expect("an end");
            let data: Value = serde_json::from_str(&event.data).expect("JSON");
            match event.name.as_str() {
                "stdout" => said += data["data"].as_str().unwrap_or_default(),
                "exit" => break,
                other => panic!("turn {turn}: {other}"),
            }
        }
        assert_eq!(said, SAID, "turn {turn}");
        forget(&sandbox, &id);
    }
    server.healthy();
}

/// Promises: F46.
#[test]
fn f46_programs_and_commands_answer_with_their_last_byte() {
    let (server, sandbox) = one();
    let mut shell = sandbox.shell();
    for turn in 0..tries(200, 20_000) {
        let exec = sandbox.exec("echo hello");
        assert_eq!(exec["stdout"], SAID, "turn {turn}: {exec}");
        let command = sandbox.command("dev", "echo hello");
        assert_eq!(command["stdout"], SAID, "turn {turn}: {command}");
        shell.run_with(Start::new("echo hello")).is(SAID, 0);
        let mut events =
            sandbox.http.events(&sandbox.path("/exec"), &json!({"command": "echo hello"}));
        let mut names = Vec::new();
        while let Some(event) = events.event() {
            names.push(event.name);
        }
        assert_eq!(names, ["stdout", "exit"], "turn {turn}");
    }
    server.healthy();
}

/// Promises: F46.
#[test]
fn f46_a_terminal_shows_its_last_byte_before_its_end() {
    let (server, sandbox) = one();
    for turn in 0..tries(60, 2_000) {
        let query = format!("session=t{}&shell=echo&arg=hello", turn % 8);
        let mut terminal = sandbox.terminal(&query);
        terminal.frame("exit");
        assert!(terminal.shown().contains("hello"), "turn {turn}: {}", terminal.shown());
    }
    server.healthy();
}
