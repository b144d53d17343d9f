//! Sessions across a tenant's sandboxes: created, listed, and ended when their time is over.

use isolet_kit::{Http, Options, Rows, SOON, Server, Start, Value, json, wait_until};
use std::time::{Duration, Instant};

fn make(http: &Http, spec: &Value) -> Value {
    http.post("/v1/sessions", spec).expect(201).json()
}

fn at(session: &Value) -> String {
    format!("/v1/sessions/{}", session["id"].as_str().expect("an id"))
}

fn run(http: &Http, session: &Value, command: &str) -> Value {
    let path = format!("{}/exec", at(session));
    http.post(&path, &json!({ "command": command })).expect(200).json()
}

fn is_there(http: &Http, session: &Value) -> bool {
    http.get(&at(session)).status == 200
}

/// A server whose sessions end a second after their last command.
fn hasty() -> Server {
    Options::new().config("session_idle_s = 1").start()
}

/// Promises: P0, P1.
#[test]
fn a_session_has_the_record_and_the_defaults_of_its_dialect() {
    let server = Server::start();
    let http = server.http();
    let reply = http.post("/v1/sessions", &json!({})).expect(201);
    let made = reply.json();
    assert_eq!(reply.header("location"), Some(&*at(&made)));
    let id = made["id"].as_str().expect("an id");
    let digits = id.strip_prefix("sess_").expect("its shape");
    assert!(digits.len() == 12 && digits.bytes().all(|b| b"0123456789abcdef".contains(&b)), "{id}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let created = made["created_at"].as_f64().expect("seconds");
    assert!((now.as_secs_f64() - created).abs() < 60.0, "{made}");
    let mut rest = made.clone();
    let fields = rest.as_object_mut().expect("an object");
    for name in ["id", "created_at", "last_activity"] {
        fields.remove(name).expect(name);
    }
    let wanted = json!({
        "busy": false, "persistent": false, "ttl": 14400, "status": "ready", "metadata": {},
        "file_access": {"read": [""], "write": [""]}, "sandbox_id": "default",
    });
    assert_eq!(rest, wanted);
    assert_eq!(http.get(&at(&made)).expect(200).json(), made);
    assert_eq!(http.get("/v1/sessions").expect(200).json(), json!([made]));
}

/// Promises: P2.
#[test]
fn a_session_keeps_its_metadata_and_lives_in_the_requested_sandbox() {
    let server = Server::start();
    let http = server.http();
    let spec = json!({
        "persistent": true, "ttl": 60, "metadata": {"for": {"tool": 1}}, "sandbox_id": "other",
        "file_access": {"write": [""]},
    });
    let made = make(&http, &spec);
    assert_eq!(made["persistent"], true);
    assert_eq!((&made["ttl"], &made["metadata"]), (&json!(60), &json!({"for": {"tool": 1}})));
    assert_eq!(made["sandbox_id"], "other");
    assert_eq!(run(&http, &made, "cd /tmp; x=5")["exit_code"], 0);
    assert_eq!(run(&http, &made, "echo $PWD $x")["stdout"], "/tmp 5\n");
    // The same session, addressed below its sandbox.
    let path = format!("/v1/sandboxes/other{}/exec", at(&made).trim_start_matches("/v1"));
    let below = http.post(&path, &json!({"command": "echo $x"})).expect(200).json();
    assert_eq!(below["stdout"], "5\n");
    let moved = http.get(&at(&made)).json();
    assert!(moved["last_activity"].as_f64() > made["last_activity"].as_f64(), "{moved}");
}

/// Promises: P5, G16.
#[test]
fn a_deleted_session_is_not_found_and_its_shell_has_ended() {
    let server = Server::start();
    let http = server.http();
    let made = make(&http, &json!({"persistent": true}));
    run(&http, &made, "sleep 1000 & echo $!");
    http.delete(&at(&made)).expect(204);
    http.delete(&at(&made)).expect(404);
    http.get(&at(&made)).expect(404);
    http.post(&format!("{}/exec", at(&made)), &json!({"command": "true"})).expect(404);
    assert_eq!(http.get("/v1/sessions").json(), json!([]));
    assert_eq!(server.named("default").says("pgrep -x sleep || echo none"), "none\n");
}

/// Calls that were opening the shell when it was closed once left another shell behind: the next
/// session with that id started in its directory, with its variables.
/// Promises: P5.
#[test]
fn no_shell_outlives_its_session_however_calls_and_deletes_interleave() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let session = sandbox.path("/sessions/dev");
    let exec = format!("{session}/exec");
    for round in 0..40_u64 {
        let mark = json!({ "command": format!("mark{round}=1; cd /tmp") });
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let mark = &mark;
                let exec = &exec;
                let http = server.http();
                scope.spawn(move || {
                    let status = http.post(exec, mark).status;
                    assert!([200, 404, 409].contains(&status), "{status}");
                });
            }
            std::thread::sleep(Duration::from_micros(round * 250));
            let deleted = server.http().delete(&session).status;
            assert!([204, 404].contains(&deleted), "{deleted}");
        });
        server.http().delete(&session);
        let next = server.http().post(&exec, &json!({"command": "pwd; set | grep ^mark"})).json();
        assert_eq!(next["stdout"], "/workspace\n", "{next}");
        server.http().delete(&session).expect(204);
    }
    assert_eq!(sandbox.says("pgrep -c bash; true"), "1\n", "the one that asks");
}

/// Promises: P9.
#[test]
fn a_session_created_below_a_sandbox_does_not_expire_and_is_not_listed_across() {
    let server = hasty();
    let http = server.http();
    http.post("/v1/sandboxes/default/sessions", &json!({"id": "own"})).expect(201);
    assert_eq!(http.get("/v1/sessions").json(), json!([]));
    http.get("/v1/sessions/own").expect(404);
    let deleted = http.delete("/v1/sessions?older_than=0s").expect(200).json();
    assert_eq!(deleted, json!({"deleted": 0}));
    let made = make(&http, &json!({}));
    wait_until("the one that is not persistent ends", SOON, || {
        (!is_there(&http, &made)).then_some(())
    });
    http.get("/v1/sandboxes/default/sessions/own").expect(200);
}

/// Promises: P9.
#[test]
fn only_a_ttl_ends_a_session_created_below_a_sandbox() {
    let server = hasty();
    let http = server.http();
    let below = "/v1/sandboxes/default/sessions";
    let made = http.post(below, &json!({"id": "short", "ttl_s": 3})).expect(201).json();
    assert_eq!(made["ttl_s"], 3);
    let end = made["created_at_ms"].as_i64().expect("ms") + 3000;
    assert_eq!(made["expires_at_ms"], end);
    let unlimited = http.post(below, &json!({"id": "kept", "ttl_s": 0})).expect(201).json();
    assert_eq!((&unlimited["ttl_s"], &unlimited["expires_at_ms"]), (&Value::Null, &Value::Null));
    assert_eq!(http.get("/v1/sessions").json(), json!([]));
    http.get("/v1/sessions/short").expect(404);
    let bulk = http.delete("/v1/sessions?older_than=0s").expect(200).json();
    assert_eq!(bulk, json!({"deleted": 0}));
    for bad in [json!(-1), json!(31_622_401), json!(1.5), Value::Null, json!("1")] {
        let refused = http.post(below, &json!({"ttl_s": bad})).expect(400).json();
        assert!(refused["message"].as_str().unwrap().contains("ttl_s"), "{refused}");
    }
    let mut shell = server.named("default").session("short");
    shell.start(Start::new("sleep 1000"));
    let there = |id: &str| http.get(&format!("{below}/{id}")).status == 200;
    wait_until("it ends", SOON, || (!there("short")).then_some(()));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.as_millis() as i64 >= end, "not before its time");
    assert!(there("kept"));
    wait_until("its command too", SOON, || {
        let left = server.named("default").says("pgrep -x sleep || echo none");
        (left == "none\n").then_some(())
    });
}

/// Promises: P13.
#[test]
fn a_session_is_busy_while_its_program_runs() {
    let server = hasty();
    let http = server.http();
    let made = make(&http, &json!({}));
    let running = std::thread::spawn({
        let http = server.http();
        let made = made.clone();
        move || {
            let program = json!({"command": "sleep 3", "session": made["id"]});
            http.post("/v1/sandboxes/default/exec", &program).expect(200).json()
        }
    });
    wait_until("it is busy", SOON, || (http.get(&at(&made)).json()["busy"] == true).then_some(()));
    let idle = http.delete("/v1/sessions?status=idle").expect(200).json();
    assert_eq!(idle, json!({"deleted": 0}));
    let answer = running.join().expect("it runs");
    assert_eq!((&answer["exit_code"], &answer["session"]), (&json!(0), &made["id"]), "{answer}");
    let after = http.get(&at(&made)).expect(200).json();
    assert_eq!(after["busy"], false, "once it is answered");
    let [first, last] = [&made, &after].map(|one| one["last_activity"].as_f64().unwrap());
    assert!(last >= first + 3.0, "the end of a program counts as use: {first}, {last}");
    wait_until("it ends after it", SOON, || (!is_there(&http, &made)).then_some(()));
}

/// Promises: P13.
#[test]
fn the_end_of_a_session_ends_its_programs() {
    let server = Server::start();
    let http = server.http();
    for by_ttl in [true, false] {
        let ttl = if by_ttl { 2 } else { 100 };
        let made = make(&http, &json!({"ttl": ttl, "persistent": true}));
        let running = std::thread::spawn({
            let http = server.http();
            let made = made.clone();
            move || {
                let program = json!({"command": "sleep 1000", "session": made["id"]});
                http.post("/v1/sandboxes/default/exec", &program)
            }
        });
        let busy = || http.get(&at(&made)).json()["busy"] == true;
        wait_until("it is busy", SOON, || busy().then_some(()));
        if !by_ttl {
            http.delete(&at(&made)).expect(204);
        }
        assert_eq!(running.join().expect("it is answered").expect(409).error(), "session_ended");
        wait_until("the program has ended", SOON, || {
            let left = server.named("default").exec("pgrep -x sleep || echo none");
            (left["stdout"] == "none\n").then_some(())
        });
        assert!(!is_there(&http, &made));
    }
}

/// Promises: P3.
#[test]
fn a_session_ends_after_its_last_command_and_not_during_one() {
    let server = hasty();
    let http = server.http();
    let [unused, working, unlimited] =
        [json!({}), json!({}), json!({"persistent": true})].map(|spec| make(&http, &spec));
    let began = Instant::now();
    let slow = std::thread::spawn({
        let http = server.http();
        let working = working.clone();
        move || run(&http, &working, "sleep 3")
    });
    wait_until("the unused one ends", SOON, || (!is_there(&http, &unused)).then_some(()));
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    wait_until("it is busy", SOON, || {
        (http.get(&at(&working)).json()["busy"] == true).then_some(())
    });
    assert_eq!(slow.join().expect("runs")["exit_code"], 0);
    assert!(is_there(&http, &working), "it ended with its command");
    wait_until("it is reported", Duration::from_millis(500), || {
        (http.get(&at(&working)).json()["busy"] == false).then_some(())
    });
    wait_until("it ends after it", SOON, || (!is_there(&http, &working)).then_some(()));
    assert!(is_there(&http, &unlimited), "a persistent one stays");
}

/// Promises: P3.
#[test]
fn an_attached_client_postpones_the_end() {
    let server = hasty();
    let http = server.http();
    let made = make(&http, &json!({}));
    let id = made["id"].as_str().expect("an id");
    let mut shell = server.named("default").session(id);
    shell.run("echo here").is("here\n", 0);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(is_there(&http, &made));
    shell.run("echo still").is("still\n", 0);
    drop(shell);
    wait_until("it ends without it", SOON, || (!is_there(&http, &made)).then_some(()));
}

/// Promises: P4.
#[test]
fn a_ttl_ends_a_session_also_in_the_middle_of_a_command() {
    let server = Server::start();
    let http = server.http();
    let made = make(&http, &json!({"ttl": 1, "persistent": true}));
    let id = made["id"].as_str().expect("an id");
    let mut shell = server.named("default").session(id);
    shell.start(Start::new("sleep 1000"));
    wait_until("it ends", SOON, || (!is_there(&http, &made)).then_some(()));
    wait_until("its command too", SOON, || {
        let left = server.named("default").says("pgrep -x sleep || echo none");
        (left == "none\n").then_some(())
    });
}

/// Promises: P4.
#[test]
fn a_ttl_counts_across_a_restart() {
    let mut server = hasty();
    let made = make(&server.http(), &json!({"ttl": 4, "persistent": true}));
    let [idle, unlimited] =
        [json!({}), json!({"persistent": true})].map(|w| make(&server.http(), &w));
    server.kill();
    server.launch();
    server.wait_until_ready();
    let http = server.http();
    assert!(is_there(&http, &made) && is_there(&http, &unlimited));
    wait_until("both end", SOON, || {
        (!is_there(&http, &made) && !is_there(&http, &idle)).then_some(())
    });
    assert!(is_there(&http, &unlimited));
}

/// Promises: P0, P6.
#[test]
fn bulk_deletes_end_sessions_that_match_every_filter() {
    let server = Server::start();
    let http = server.http();
    let [busy, old, young] = [0, 1, 2].map(|_| make(&http, &json!({"persistent": true})));
    let id = busy["id"].as_str().expect("an id");
    let mut shell = server.named("default").session(id);
    let command = shell.start(Start::new("sleep 1000"));
    wait_until("it is busy", SOON, || (http.get(&at(&busy)).json()["busy"] == true).then_some(()));
    std::thread::sleep(Duration::from_millis(2100));
    run(&http, &young, "true");
    let bulk = |query: &str| {
        http.delete(&format!("/v1/sessions?{query}")).expect(200).json()["deleted"].clone()
    };
    assert_eq!(bulk("status=idle&older_than=1h30m"), 0);
    assert_eq!(bulk("status=idle&older_than=2s"), 1);
    assert!(!is_there(&http, &old) && is_there(&http, &young) && is_there(&http, &busy));
    assert_eq!(bulk("status=idle"), 1);
    assert!(!is_there(&http, &young) && is_there(&http, &busy));
    shell.cancel(&command);
    shell.finish(&command);
    assert_eq!(bulk("older_than=0s"), 1);
    assert_eq!(http.get("/v1/sessions").json(), json!([]));
}

/// Promises: P8.
#[test]
fn an_idempotency_key_creates_one_session() {
    let server = Server::start();
    let http = server.http().with("Idempotency-Key", "k1");
    let first = http.post("/v1/sessions", &json!({"ttl": 9})).expect(201);
    let again = http.post("/v1/sessions", &json!({"ttl": 9})).expect(201);
    assert_eq!((first.json(), again.header("idempotency-replayed")), (again.json(), Some("true")));
    assert_eq!(
        http.post("/v1/sessions", &json!({"ttl": 8})).expect(422).error(),
        "idempotency_mismatch"
    );
    assert_eq!(server.http().get("/v1/sessions").json().as_array().map(Vec::len), Some(1));
}

/// Promises: P7.
#[test]
fn lists_are_paged_and_forged_cursors_refused() {
    let server = Server::start();
    let http = server.http();
    let mut made: Vec<_> =
        (0..5).map(|_| make(&http, &json!({}))["id"].as_str().unwrap().to_owned()).collect();
    made.sort();
    let mut seen = Vec::new();
    let mut next = Some("/v1/sessions?limit=2".to_owned());
    while let Some(path) = next {
        let reply = http.get(&path).expect(200);
        let page = reply.json();
        seen.extend(page.as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()));
        let link = reply.header("link").map(str::to_owned);
        next = link.and_then(|link| Some(link.strip_prefix('<')?.split_once('>')?.0.to_owned()));
    }
    assert_eq!(seen, made);
    for query in ["limit=0", "limit=1001", "limit=x", "cursor=%00", "cursor=Li4v", "nope=1"] {
        assert_eq!(http.get(&format!("/v1/sessions?{query}")).expect(400).error(), "bad_request");
    }
}

/// Promises: V2.
#[test]
fn invalid_requests_are_refused_by_name_and_create_nothing() {
    let server = Server::start();
    let http = server.http();
    let mut rows = Rows::new();
    let big = "x".repeat(17 * 1024);
    let bad = [
        ("ttl", json!({"ttl": 0})),
        ("ttl", json!({"ttl": -1})),
        ("ttl", json!({"ttl": 1.5})),
        ("ttl", json!({"ttl": 31_622_401})),
        ("ttl", json!({"ttl": null})),
        ("persistent", json!({"persistent": 1})),
        ("metadata", json!({"metadata": []})),
        ("metadata", json!({"metadata": {"label": big}})),
        ("nope", json!({"nope": 1})),
        ("id", json!({"id": "mine"})),
        ("file_access", json!({"file_access": {"read": ["../a"]}})),
        ("execute", json!({"file_access": {"execute": [""]}})),
        ("file_access", json!({"file_access": [""]})),
        ("id", json!({"sandbox_id": "../x"})),
    ];
    for (name, spec) in bad {
        rows.row(&spec.to_string()[..spec.to_string().len().min(60)], || {
            let reply = http.post("/v1/sessions", &spec).expect(400).json();
            assert!(reply["message"].as_str().unwrap().contains(name), "{reply}");
        });
    }
    for query in ["", "?status=busy", "?older_than=1d", "?older_than=", "?older_than=30", "?x=1"] {
        rows.row(query, || {
            http.delete(&format!("/v1/sessions{query}")).expect(400);
        });
    }
    drop(rows);
    assert_eq!(http.get("/v1/sandboxes").json(), json!([]));
}

#[test]
fn a_changed_environment_is_seen_by_what_starts_later() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.post("/sessions", &json!({"id": "s", "env": {"A": "old", "B": "b"}})).expect(201);
    assert_eq!(sandbox.command("s", "echo $A$B")["stdout"], "oldb\n");
    let http = server.http();
    let change = |body: Value| http.patch(&sandbox.path("/sessions/s"), &body);
    let changed = change(json!({"env": {"A": "new", "B": null, "C": "c"}, "metadata": {"m": 1}}));
    let changed = changed.expect(200).json();
    assert_eq!(changed["env_names"], json!(["A", "C"]), "{changed}");
    assert_eq!(changed["metadata"], json!({"m": 1}), "{changed}");
    let program = |command: &str| {
        let body = json!({"command": command, "session": "s"});
        sandbox.post("/exec", &body).expect(200).json()["stdout"].clone()
    };
    assert_eq!(program("echo $A$B$C"), "newc\n");
    assert_eq!(sandbox.command("s", "echo $A$B$C")["stdout"], "oldb\n", "its shell is open");
    sandbox.command("s", "exit");
    assert_eq!(sandbox.command("s", "echo $A$B$C")["stdout"], "newc\n");
    for bad in [json!({"env": {"": "x"}}), json!({"cwd": "/"}), json!({"metadata": null})] {
        change(bad).expect(400);
    }
    http.patch(&sandbox.path("/sessions/none"), &json!({})).expect(404);
    let default = sandbox.path("/sessions/default");
    http.patch(&default, &json!({"env": {"D": "d"}})).expect(200);
    server.restart();
    let http = server.http();
    let of = |id: &str| {
        let path = sandbox.path(&format!("/sessions/{id}"));
        http.get(&path).expect(200).json()["env_names"].clone()
    };
    assert_eq!((of("s"), of("default")), (json!(["A", "C"]), json!(["D"])));
}
