//! The wall clock steps: what the server counts goes on, what it promises by date follows.

use isolet_kit::{Http, Options, Rows, SOON, Sandbox, Server, json, quickly, wait_until};
use std::{path::PathBuf, process::Command};
use tempfile::TempDir;

/// A server whose wall clock steps; nobody else's does.
struct Stepped {
    server: Server,
    folder: TempDir,
}

impl Stepped {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let (library, shift) = (folder.path().join("wall.so"), folder.path().join("shift"));
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/faults/wall.c");
        let mut compiler = Command::new("cc");
        let built = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(built.expect("cc runs").success());
        std::fs::write(&shift, "0").expect("writes");
        let text = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
        let options = Options::new()
            .env("LD_PRELOAD", &text(library))
            .env("WALL_CLOCK_SHIFT", &text(shift))
            .config("sleep_after_s = 600\nsession_idle_s = 2");
        Self { server: options.start(), folder }
    }

    fn step(&self, seconds: i64) {
        // In one write, shorter than what was there or not: read as one number either way.
        let text = format!("{seconds:<20}");
        std::fs::write(self.folder.path().join("shift"), text).expect("writes");
    }
}

/// Seconds since 1970 as the server tells them.
fn wall(server: &Server) -> i64 {
    let made = server.sandbox();
    let at = made.info()["created_at_ms"].as_i64().expect("a number") / 1000;
    made.delete();
    at
}

fn gone(http: &Http, sandbox: &Sandbox) {
    wait_until("its time ends it", SOON, || {
        (http.get(&sandbox.path("")).status == 404).then_some(())
    });
}

const STEPS: [(&str, i64); 5] = [
    ("an hour on", 3600),
    ("an hour back", -3600),
    ("a day back", -86_400),
    ("a second twice", -1),
    ("before 1970", -4_000_000_000),
];

#[test]
fn f28_a_step_of_the_wall_clock_ends_nothing_and_keeps_nothing_alive() {
    let stepped = Stepped::start();
    let server = &stepped.server;
    let http = server.http();
    let before = wall(server);
    stepped.step(7200);
    assert!((wall(server) - before - 7200).abs() < 60, "the server's clock, and no other, steps");
    stepped.step(0);
    let mut rows = Rows::new();
    for (name, seconds) in STEPS {
        rows.row(name, || {
            let idle = server.sandbox_with(&json!({"sleep_after_s": 1800}));
            let long = server.sandbox_with(&json!({"ttl_s": 1800}));
            let short = server.sandbox_with(&json!({"ttl_s": 2, "sleep_after_s": 1}));
            let wish = json!({"persistent": true, "ttl": 1800});
            let lasting = http.post("/v1/sessions", &wish).expect(201).json();
            let ending = http.post("/v1/sessions", &json!({})).expect(201).json();
            let path = |session: &isolet_kit::Value| {
                format!("/v1/sessions/{}", session["id"].as_str().expect("an id"))
            };
            idle.command("s", "x=1");
            stepped.step(seconds);
            let taken = idle.command("s", "sleep 0.05; echo $x");
            assert_eq!(taken["stdout"], "1\n");
            let ms = taken["duration_ms"].as_f64().expect("a number");
            assert!((40.0..20_000.0).contains(&ms), "{taken}");
            quickly("what is short ends in its time", SOON, || {
                gone(&http, &short);
                wait_until("an unused session ends", SOON, || {
                    (http.get(&path(&ending)).status == 404).then_some(())
                });
            });
            for one in [&idle, &long] {
                let told = one.info();
                assert_eq!(told["state"], "running", "{told}");
                assert!(told["usage"]["uptime_ms"].as_i64().is_some_and(|ms| ms >= 0), "{told}");
                one.delete();
            }
            http.get(&path(&lasting)).expect(200);
            http.delete(&path(&lasting)).expect(204);
            stepped.step(0);
        });
    }
    drop(rows);
    server.healthy();
}

#[test]
fn f28_a_key_ends_by_the_wall_clock_and_events_keep_their_order() {
    let mut stepped = Stepped::start();
    let key = stepped.server.add_key(&["--expires", "1h"]);
    let server = &stepped.server;
    let http = Http::new(server.port(), Some(&key));
    http.get("/v1/sandboxes").expect(200);
    stepped.step(3590);
    http.get("/v1/sandboxes").expect(200);
    stepped.step(3610);
    wait_until("it has ended", SOON, || (http.get("/v1/sandboxes").status == 401).then_some(()));
    stepped.step(0);
    let mut events = server.http().with("accept", "text/event-stream");
    events.headers.push(("last-event-id".to_owned(), "0".to_owned()));
    let mut last = 0;
    for seconds in [0, 3600, -3600, -86_400] {
        stepped.step(seconds);
        server.sandbox().delete();
    }
    let mut stream = events.try_open("GET", "/v1/events", None).expect("an answer");
    let mut destroyed = 0;
    while destroyed < 4 {
        let event = stream.event().expect("an event");
        let data: isolet_kit::Value = serde_json::from_str(&event.data).expect("JSON");
        if event.name == "gap" {
            continue;
        }
        let id = data["id"].as_u64().expect("a number");
        assert!(id > last, "{id} after {last}");
        last = id;
        destroyed += u64::from(event.name == "destroyed");
    }
}
