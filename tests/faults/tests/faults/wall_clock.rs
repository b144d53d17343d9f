//! The wall clock steps: what the server measures continues, what it promises by date follows the
//! clock.

use isolet_kit::{Http, Options, Rows, SOON, Sandbox, Server, WallClock, json, wait_until};
use tempfile::TempDir;

/// A server whose wall clock can step, independently of the machine's clock.
struct Stepped {
    server: Server,
    clock: WallClock,
    _folder: TempDir,
}

impl Stepped {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let clock = WallClock::new(folder.path());
        let mut options = Options::new();
        for (name, value) in clock.variables() {
            options = options.env(name, value);
        }
        let options = options.config("sleep_after_s = 600\nsession_idle_s = 2");
        Self { server: options.start(), clock, _folder: folder }
    }

    fn step(&self, seconds: i64) {
        self.clock.step(seconds);
    }
}

/// The current time according to the server, in seconds since 1970.
fn wall(server: &Server) -> i64 {
    let made = server.sandbox();
    let at = made.info()["created_at_ms"].as_i64().expect("a number") / 1000;
    made.delete();
    at
}

fn gone(http: &Http, sandbox: &Sandbox) {
    wait_until("its ttl ends it", SOON, || {
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

/// Promises: F28.
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
            let spec = json!({"persistent": true, "ttl": 1800});
            let lasting = http.post("/v1/sessions", &spec).expect(201).json();
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
            gone(&http, &short);
            wait_until("an unused session ends", SOON, || {
                (http.get(&path(&ending)).status == 404).then_some(())
            });
            for one in [&idle, &long] {
                let reply = one.info();
                assert_eq!(reply["state"], "running", "{reply}");
                assert!(reply["usage"]["uptime_ms"].as_i64().is_some_and(|ms| ms >= 0), "{reply}");
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

/// Promises: F28.
#[test]
fn f28_a_key_expires_by_the_wall_clock_and_events_keep_their_order() {
    let mut stepped = Stepped::start();
    let key = stepped.server.add_key(&["--expires", "1h"]);
    let server = &stepped.server;
    let http = Http::new(server.port(), Some(&key));
    http.get("/v1/sandboxes").expect(200);
    stepped.step(3400);
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

/// A step of an hour was billed as an hour of work, and a step back removed what had been counted.
/// Promises: F28.
#[test]
fn f28_usage_does_not_step_with_the_wall_clock() {
    let stepped = Stepped::start();
    let server = &stepped.server;
    let mut rows = Rows::new();
    for (name, seconds) in STEPS {
        rows.row(name, || {
            let sandbox = server.sandbox();
            let awake = || sandbox.info()["usage"]["awake_ms"].as_u64().expect("a number");
            let before =
                wait_until("it has been awake", SOON, || Some(awake()).filter(|ms| *ms > 0));
            let key = format!("key-{seconds}");
            let once = server.http().with("idempotency-key", &key);
            let made = once.post("/v1/sandboxes", &json!({})).expect(201).json();
            let spec = json!({"sandbox": sandbox.id, "use": "shell", "ttl_s": 60});
            let ticket = server.http().post("/v1/tickets", &spec).expect(201).json();
            let mut events = server.http().try_open("GET", "/v1/events", None).expect("an answer");
            stepped.step(seconds);
            let after = awake();
            assert!(before <= after && after < 600_000, "{before} ms, then {after} ms");
            let opened = format!("ticket={}", ticket["ticket"].as_str().expect("a ticket"));
            let keyless = Sandbox { http: Http::new(server.port(), None), ..sandbox.clone() };
            keyless.open(&opened).run("echo in").is("in\n", 0);
            assert_eq!(keyless.try_open(&opened).err(), Some(401), "a ticket opens once");
            sandbox.delete();
            wait_until("the stream goes on", SOON, || {
                (events.event().expect("an event").name == "destroyed").then_some(())
            });
            stepped.step(0);
            let again = once.post("/v1/sandboxes", &json!({}));
            assert_eq!(
                again.json()["id"],
                made["id"],
                "a key means what it meant: {}",
                again.text()
            );
            server.named(made["id"].as_str().expect("an id")).delete();
        });
    }
    drop(rows);
    server.healthy();
}

/// Promises: F28.
#[test]
fn f28_a_port_url_expires_by_the_wall_clock() {
    let stepped = Stepped::start();
    let sandbox = stepped.server.sandbox();
    let link = sandbox.post("/links", &json!({"port": 8000, "ttl_s": 1800})).expect(201).json();
    let url = link["url"].as_str().expect("an address");
    let path = &url[url.find("/v1/links/").expect("a path")..];
    let http = Http::new(stepped.server.port(), None);
    // Nothing listens there, so an authorized client gets 502.
    for (seconds, status) in [(0, 502), (1700, 502), (1900, 401), (-86_400, 502), (0, 502)] {
        stepped.step(seconds);
        assert_eq!(http.get(path).status, status, "{seconds} s");
    }
}

/// Promises: F28.
#[test]
fn f28_an_audit_log_written_across_steps_is_valid() {
    let stepped = Stepped::start();
    let server = &stepped.server;
    for (_, seconds) in STEPS {
        stepped.step(seconds);
        server.sandbox().delete();
        // The log is written after the answers.
        wait_until("the log exists and is complete", SOON, || {
            let said = server.command(&["audit", "verify", "--tenant", "default"]);
            said.status.success().then_some(())
        });
    }
    stepped.step(0);
    let all = server.http().get("/v1/audit").expect(200);
    let deletes = all.text().matches("sandbox.destroy").count();
    assert!(deletes >= STEPS.len(), "{deletes}: {}", all.text());
}

/// Only the date outlives a server: at the next start, the remaining lifetime is what the date
/// says.
/// Promises: F28.
#[test]
fn f28_after_a_restart_a_ttl_expires_by_the_date() {
    let mut stepped = Stepped::start();
    let ending = stepped.server.sandbox_with(&json!({"ttl_s": 1800}));
    let lasting = stepped.server.sandbox();
    lasting.command("s", "x=1");
    for seconds in [-86_400, 1700] {
        stepped.step(seconds);
        stepped.server.restart();
        for one in [&ending, &lasting] {
            let reply = one.info();
            assert_eq!(reply["state"], "running", "{seconds} s: {reply}");
        }
        assert_eq!(lasting.command("s", "echo $x")["stdout"], "1\n");
    }
    stepped.step(1900);
    stepped.server.restart();
    gone(&stepped.server.http(), &ending);
    assert_eq!(lasting.info()["state"], "running");
    stepped.step(0);
    stepped.server.restart();
    lasting.delete();
    stepped.server.healthy();
}
