//! Background processes: their state, their logs and their ends.

use base64::Engine as _;
use isolet_kit::{
    Event, Http, LONG, Reply, Rows, SOON, Sandbox, Server, Value, json, one, process, tries,
    wait_until,
};

fn start(sandbox: &Sandbox, body: &Value) -> Value {
    sandbox.post("/processes", body).expect(201).json()
}

fn run(sandbox: &Sandbox, id: &str, command: &str) -> Value {
    start(sandbox, &json!({"id": id, "command": command}))
}

fn at(id: &str, rest: &str) -> String {
    format!("/processes/{id}{rest}")
}

fn get(sandbox: &Sandbox, id: &str) -> Value {
    sandbox.http.get(&sandbox.path(&at(id, ""))).expect(200).json()
}

fn wait(sandbox: &Sandbox, id: &str, body: &Value) -> Value {
    sandbox.post(&at(id, "/wait"), body).expect(200).json()
}

fn log(sandbox: &Sandbox, id: &str, since: u64) -> Value {
    let path = sandbox.path(&at(id, &format!("/logs?since={since}")));
    sandbox.http.get(&path).expect(200).json()
}

fn kill(sandbox: &Sandbox, id: &str) -> Value {
    sandbox.post(&at(id, "/kill"), &json!({"signal": "KILL"})).expect(200).json()
}

fn follow(http: &Http, sandbox: &Sandbox, id: &str, query: &str) -> isolet_kit::Stream {
    let path = sandbox.path(&at(id, &format!("/logs{query}")));
    http.try_open("GET", &path, None).expect("an answer")
}

fn exact(sandbox: &Sandbox) -> Http {
    sandbox.http.with("accept", "text/event-stream; encoding=base64")
}

fn bytes(event: &Event) -> Vec<u8> {
    let data: Value = serde_json::from_str(&event.data).expect("JSON");
    let text = data["data_b64"].as_str().unwrap_or_default();
    base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
}

/// Promises: J1.
#[test]
fn a_process_runs_without_a_client_and_its_state_is_true() {
    let (server, sandbox) = one();
    let begun = run(&sandbox, "web", "echo on; sleep 4711");
    assert_eq!((&begun["id"], &begun["status"]), (&json!("web"), &json!("running")), "{begun}");
    assert_eq!(begun["command"], "echo on; sleep 4711");
    let pid = begun["pid"].as_i64().expect("a pid");
    let made = start(&sandbox, &json!({"argv": ["printf", "%s", "a b"]}));
    let id = made["id"].as_str().expect("an id");
    assert!(id.starts_with("proc_"));
    let ended = wait(&sandbox, id, &json!({"exit": true}));
    assert_eq!((&ended["outcome"], &ended["process"]["status"]), (&json!("met"), &json!("exited")));
    assert_eq!(
        (&ended["process"]["exit_code"], &log(&sandbox, id, 0)["stdout"]),
        (&json!(0), &json!("a b"))
    );
    let listed = sandbox.http.get(&sandbox.path("/processes")).expect(200).json();
    let ids: Vec<_> = listed.as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, ["web", id]);
    // A kill from inside is visible immediately.
    sandbox.exec(&format!("kill -9 {pid}"));
    let ended = wait(&sandbox, "web", &json!({"exit": true}));
    assert_eq!(
        (&ended["process"]["status"], &ended["process"]["signal"]),
        (&json!("killed"), &json!(9))
    );
    assert_eq!(get(&sandbox, "web")["exit_code"], 137);
    let gone = |reply: Reply| assert_eq!(reply.expect(404).error(), "no_such_process");
    gone(sandbox.http.get(&sandbox.path("/processes/never")));
    sandbox.http.delete(&sandbox.path("/processes/web")).expect(204);
    gone(sandbox.http.get(&sandbox.path("/processes/web")));
    gone(sandbox.post("/processes/web/kill", &json!({})));
    server.healthy();
}

/// Promises: J2.
#[test]
fn impossible_actions_on_processes_are_refused_by_name() {
    let (_server, sandbox) = one();
    run(&sandbox, "a", "sleep 1000");
    let mut rows = Rows::new();
    for (name, rest, body, status, code) in [
        ("taken", "/processes", json!({"id": "a", "command": "true"}), 409, "id_in_use"),
        ("no id", "/processes", json!({"id": "../x", "command": "true"}), 400, "bad_field"),
        ("nothing", "/processes", json!({}), 400, "bad_field"),
        ("both", "/processes", json!({"command": "a", "argv": ["a"]}), 400, "bad_field"),
        ("no program", "/processes", json!({"argv": ["no-such-thing"]}), 404, "not_found"),
        ("no place", "/processes", json!({"command": "a", "cwd": "/no"}), 400, "bad_cwd"),
        ("no input", "/processes/a/stdin", json!({"data": "x"}), 409, "process_ended"),
        ("no signal", "/processes/a/signal", json!({"signal": 65}), 400, "bad_field"),
        ("no wait", "/processes/a/wait", json!({}), 400, "bad_field"),
        ("no end", "/processes/a/wait", json!({"exit": true, "timeout_ms": 0}), 400, "bad_field"),
        ("no pattern", "/processes/a/wait", json!({"log": {"regex": "("}}), 400, "bad_field"),
        (
            "a pattern that grows",
            "/processes/a/wait",
            json!({"log": {"regex": "a{9999}{9999}"}}),
            400,
            "bad_field",
        ),
        ("unknown", "/processes/a/kill", json!({"force": 1}), 400, "bad_request"),
    ] {
        rows.row(name, || {
            let reply = sandbox.post(rest, &body);
            assert_eq!(
                (reply.status, reply.error()),
                (status, code.to_owned()),
                "{}",
                reply.text()
            );
        });
    }
}

/// Promises: J1.
#[test]
fn a_process_starts_with_its_sessions_directory_and_environment() {
    let (_server, sandbox) = one();
    let session = json!({"id": "dev", "cwd": "/tmp", "env": {"A": "1", "B": "2"}});
    sandbox.post("/sessions", &session).expect(201);
    let body = json!({"id": "p", "command": "pwd; echo $A $B $C", "session": "dev", "env": {"B": null, "C": "3"}});
    assert_eq!(start(&sandbox, &body)["session"], "dev");
    wait(&sandbox, "p", &json!({"exit": true}));
    assert_eq!(log(&sandbox, "p", 0)["stdout"], "/tmp\n1 3\n");
}

/// Promises: J3.
#[test]
fn a_kill_reaches_processes_wherever_they_went() {
    let (server, sandbox) = one();
    // What a kill of the process group misses: other sessions, orphans, and processes that keep
    // forking.
    let text = "setsid sleep 4801 & (setsid setsid sleep 4802 & exit); (sleep 4803 & disown) & \
                nohup setsid bash -c 'trap \"\" TERM INT HUP; while :; do setsid sleep 4804 & sleep 0.01; done' & \
                wait";
    run(&sandbox, "tree", text);
    wait_until("all of it runs", SOON, || (server.processes("sleep").len() > 8).then_some(()));
    let killed = kill(&sandbox, "tree");
    assert_eq!((&killed["status"], &killed["remains"]), (&json!("killed"), &json!(false)));
    assert!(server.processes("sleep").is_empty());
    // A process whose program has ended while its daemon still runs.
    run(&sandbox, "daemon", "setsid sleep 4805 >/dev/null 2>&1 &");
    let ended = wait(&sandbox, "daemon", &json!({"exit": true}));
    assert_eq!(
        (&ended["process"]["status"], &ended["process"]["remains"]),
        (&json!("exited"), &json!(true))
    );
    assert_eq!(kill(&sandbox, "daemon")["remains"], false);
    assert!(server.processes("sleep").is_empty());
    server.healthy();
}

/// Promises: J3.
#[test]
fn a_fork_bomb_ends_with_its_process() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"pids": 200}));
    run(&sandbox, "bomb", "f() { setsid sleep 4806 & f & f; }; f; wait");
    wait_until("it fills its limit", SOON, || (server.processes("sleep").len() > 50).then_some(()));
    isolet_kit::quickly("its end", SOON, || kill(&sandbox, "bomb"));
    assert!(server.processes("sleep").is_empty());
    assert_eq!(sandbox.says("echo on"), "on\n");
}

/// Promises: J4.
#[test]
fn a_graceful_end_waits_for_the_clean_up_up_to_its_limit() {
    let (_server, sandbox) = one();
    run(&sandbox, "good", "trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.01; done");
    run(&sandbox, "deaf", "trap '' TERM; echo on; sleep 1000; sleep 1000");
    for id in ["good", "deaf"] {
        assert_eq!(wait(&sandbox, id, &json!({"log": {"text": "on"}}))["outcome"], "met");
    }
    let ended = sandbox.post("/processes/good/kill", &json!({})).expect(200).json();
    assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("exited"), &json!(3)), "{ended}");
    assert_eq!(log(&sandbox, "good", 0)["stdout"], "on\nbye\n");
    let ended = sandbox.post("/processes/deaf/kill", &json!({"grace_ms": 50})).expect(200).json();
    assert_eq!((&ended["status"], &ended["signal"]), (&json!("killed"), &json!(9)), "{ended}");
    let body = json!({"id": "late", "command": "sleep 1000", "timeout_ms": 50});
    start(&sandbox, &body);
    let ended = wait(&sandbox, "late", &json!({"exit": true}))["process"].clone();
    assert_eq!(
        (&ended["timed_out"], &ended["status"]),
        (&json!(true), &json!("killed")),
        "{ended}"
    );
}

/// Promises: J5.
#[test]
fn input_and_signals_reach_it() {
    let (_server, sandbox) = one();
    start(&sandbox, &json!({"id": "cat", "command": "cat", "stdin": true}));
    let input = |body: Value| sandbox.post("/processes/cat/stdin", &body);
    input(json!({"data": "one\n"})).expect(204);
    assert_eq!(wait(&sandbox, "cat", &json!({"log": {"text": "one"}}))["line"], "one");
    input(json!({"data_b64": "AP8K", "eof": true})).expect(204);
    assert_eq!(wait(&sandbox, "cat", &json!({"exit": true}))["process"]["exit_code"], 0);
    assert_eq!(log(&sandbox, "cat", 4)["stdout_b64"], "AP8K");
    assert_eq!(input(json!({"data": "x"})).expect(409).error(), "process_ended");
    // A process that does not read its input is not fed forever.
    start(&sandbox, &json!({"id": "full", "command": "sleep 1000", "stdin": true}));
    let big = json!({"data": "x".repeat(1_000_000)});
    let replies: Vec<u16> =
        (0..3).map(|_| sandbox.post("/processes/full/stdin", &big).status).collect();
    assert_eq!((replies[0], replies[2]), (204, 429), "{replies:?}");
    run(&sandbox, "trap", "trap 'echo got' USR1; echo on; while :; do sleep 0.01; done");
    wait(&sandbox, "trap", &json!({"log": {"text": "on"}}));
    sandbox.post("/processes/trap/signal", &json!({"signal": "USR1"})).expect(204);
    assert_eq!(wait(&sandbox, "trap", &json!({"log": {"text": "got"}}))["outcome"], "met");
}

/// Promises: J8.
#[test]
fn a_wait_for_a_line_ends_with_the_line_the_process_or_its_time() {
    let (_server, sandbox) = one();
    run(
        &sandbox,
        "p",
        "echo one; echo ready on port 8080 >&2; printf 'prompt> '; read x <&1; sleep 1000",
    );
    let line = wait(&sandbox, "p", &json!({"log": {"regex": "port (\\d+)$"}}));
    assert_eq!((&line["line"], &line["stream"]), (&json!("ready on port 8080"), &json!("stderr")));
    let line = wait(&sandbox, "p", &json!({"log": {"text": "prompt"}}));
    assert_eq!((&line["line"], &line["outcome"]), (&json!("prompt> "), &json!("met")));
    let only = json!({"log": {"text": "ready", "stream": "stdout"}, "timeout_ms": 100});
    assert_eq!(wait(&sandbox, "p", &only)["outcome"], "timeout");
    let later = json!({"log": {"text": "one", "since": line["position"]}, "timeout_ms": 100});
    assert_eq!(wait(&sandbox, "p", &later)["outcome"], "timeout");
    assert_eq!(wait(&sandbox, "p", &json!({"exit": true, "timeout_ms": 50}))["outcome"], "timeout");
    run(&sandbox, "short", "echo two");
    let ended = wait(&sandbox, "short", &json!({"log": {"text": "one"}}));
    assert_eq!((&ended["outcome"], &ended["process"]["exit_code"]), (&json!("ended"), &json!(0)));
}

/// Promises: J8.
#[test]
fn a_wait_for_a_port_ends_when_it_takes_connections_or_answers() {
    let (_server, sandbox) = one();
    let text = "sleep 0.3; exec python3 -m http.server --bind 127.0.0.1 8123";
    run(&sandbox, "web", text);
    let port = |spec: Value| wait(&sandbox, "web", &json!({"port": spec, "timeout_ms": 60_000}));
    assert_eq!(port(json!({"port": 8123}))["outcome"], "met");
    assert_eq!(port(json!({"port": 8123, "path": "/"}))["outcome"], "met");
    assert_eq!(port(json!({"port": 8123, "path": "/none", "status": 404}))["outcome"], "met");
    let never = json!({"port": {"port": 8123, "path": "/none"}, "timeout_ms": 150});
    assert_eq!(wait(&sandbox, "web", &never)["outcome"], "timeout");
    let other = json!({"port": {"port": 8124}, "timeout_ms": 150});
    assert_eq!(wait(&sandbox, "web", &other)["outcome"], "timeout");
    run(&sandbox, "short", "sleep 0.1");
    let ended = wait(&sandbox, "short", &json!({"port": {"port": 8124}}));
    assert_eq!((&ended["outcome"], &ended["process"]["exit_code"]), (&json!("ended"), &json!(0)));
}

/// Promises: J6.
#[test]
fn a_log_is_followed_from_any_position_without_loss_or_repeat() {
    let (_server, sandbox) = one();
    let text = "for n in {1..3000}; do echo out $n; echo err $n >&2; done; printf 'é\\xff'";
    run(&sandbox, "p", text);
    let heard = |from: Option<&str>| {
        let mut http = exact(&sandbox);
        if let Some(id) = from {
            http = http.with("last-event-id", id);
        }
        let mut stream = follow(&http, &sandbox, "p", "");
        let mut all: Vec<(String, Vec<u8>, String)> = Vec::new();
        while let Some(event) = stream.event() {
            all.push((event.name.clone(), bytes(&event), event.id));
        }
        all
    };
    let all = heard(None);
    let of = |all: &[(String, Vec<u8>, String)], name: &str| -> Vec<u8> {
        all.iter().filter(|(own, ..)| own == name).flat_map(|(_, bytes, _)| bytes.clone()).collect()
    };
    let out = of(&all, "stdout");
    let err = of(&all, "stderr");
    let lines = |name: &str| (1..=3000).map(|n| format!("{name} {n}\n")).collect::<String>();
    assert_eq!(out, [lines("out").as_bytes(), "é".as_bytes(), b"\xff"].concat());
    assert_eq!(err, lines("err").as_bytes());
    assert_eq!(all.last().expect("an end").0, "exit");
    for at in [0, all.len() / 2, all.len() - 2] {
        let rest = heard(Some(&all[at].2));
        let head = |name| of(&all[..=at], name);
        assert_eq!([head("stdout"), of(&rest, "stdout")].concat(), out, "from {at}");
        assert_eq!([head("stderr"), of(&rest, "stderr")].concat(), err, "from {at}");
    }
    let mut stream = follow(&sandbox.http.with("accept", "text/event-stream"), &sandbox, "p", "");
    let mut text = String::new();
    while let Some(event) = stream.event() {
        let data: Value = serde_json::from_str(&event.data).expect("JSON");
        text.push_str(if event.name == "stdout" {
            data["data"].as_str().unwrap_or("")
        } else {
            ""
        });
    }
    assert!(text.ends_with("out 3000\né\u{FFFD}"));
}

/// Promises: J6.
#[test]
fn a_log_reports_what_it_no_longer_holds() {
    let (server, sandbox) = one();
    let total = 20_000_000_u64;
    run(&sandbox, "p", "head -c 20000000 /dev/zero | tr '\\0' x");
    wait(&sandbox, "p", &json!({"exit": true}));
    let held = log(&sandbox, "p", 0);
    let missed = held["missed"].as_u64().expect("a number");
    let text = held["stdout"].as_str();
    assert_eq!((held["from"].as_u64(), held["position"].as_u64()), (Some(missed), Some(total)));
    let retained = text.expect("text").len() as u64;
    assert!(retained + missed == total && retained > 500_000 && retained <= 1 << 20, "{retained}");
    let first = follow(&exact(&sandbox), &sandbox, "p", "?since=10").event().expect("an event");
    assert_eq!(first.name, "gap");
    assert_eq!(first.data, json!({"from": 10, "to": missed}).to_string());
    // A process that writes forever uses neither much memory nor all of the agent's time.
    run(&sandbox, "yes", "yes");
    let position = || get(&sandbox, "yes")["position"].as_u64().expect("a number");
    wait_until("it has written much", LONG, || (position() > 300_000_000).then_some(()));
    assert!(process::memory_kib(server.agent()) < 64 * 1024);
    assert_eq!(sandbox.says("echo on"), "on\n");
    kill(&sandbox, "yes");
}

/// Promises: J9.
#[test]
fn a_killed_server_finds_its_processes_and_their_logs() {
    let (mut server, sandbox) = one();
    let text = "for n in {1..200}; do echo $n; sleep 0.01; done; read x; exit 5";
    let begun = start(&sandbox, &json!({"id": "p", "command": text, "stdin": true}));
    let mut stream = follow(&exact(&sandbox), &sandbox, "p", "");
    let mut out = Vec::new();
    let mut last = String::new();
    while out.len() < 20 {
        let event = stream.event().expect("an event");
        out.extend(bytes(&event));
        last = event.id;
    }
    server.kill();
    drop(stream);
    server.restart();
    assert_eq!(get(&sandbox, "p")["pid"], begun["pid"]);
    let http = exact(&sandbox).with("last-event-id", &last);
    let mut stream = follow(&http, &sandbox, "p", "");
    while out.len() < (1..=200).map(|n: u32| n.to_string().len() + 1).sum::<usize>() {
        out.extend(bytes(&stream.event().expect("an event")));
    }
    assert_eq!(out, (1..=200).map(|n| format!("{n}\n")).collect::<String>().into_bytes());
    sandbox.post("/processes/p/stdin", &json!({"data": "\n"})).expect(204);
    let end = stream.event().expect("its end");
    let reported: Value = serde_json::from_str(&end.data).expect("JSON");
    assert_eq!((end.name.as_str(), &reported["exit_code"]), ("exit", &json!(5)));
}

/// Promises: J10.
#[test]
fn processes_that_a_sleep_ended_are_reported_as_lost() {
    let server = Server::start();
    let sandbox = server.sandbox();
    run(&sandbox, "runs", "sleep 4711");
    run(&sandbox, "done", "exit 4");
    wait(&sandbox, "done", &json!({"exit": true}));
    wait_until("it can be put to sleep", SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    let reported = || {
        let all = sandbox.http.get(&sandbox.path("/processes")).expect(200).json();
        let all = all.as_array().expect("a list").clone();
        let mut all: Vec<_> = all
            .iter()
            .map(|one| (one["id"].clone(), one["status"].clone(), one["exit_code"].clone()))
            .collect();
        all.sort_by_key(|one| one.0.to_string());
        all
    };
    let lost = vec![
        (json!("done"), json!("exited"), json!(4)),
        (json!("runs"), json!("lost"), Value::Null),
    ];
    assert_eq!(reported(), lost);
    assert_eq!(sandbox.info()["state"], "sleeping", "it was not woken");
    let reply = sandbox.http.get(&sandbox.path("/processes/runs/logs")).expect(410);
    assert_eq!(reply.error(), "process_lost");
    let woken = start(&sandbox, &json!({"id": "new", "command": "sleep 4711"}));
    assert_eq!(woken["lost"], json!(["processes"]), "{woken}");
    assert_eq!(get(&sandbox, "runs")["status"], "lost");
    assert_eq!(wait(&sandbox, "runs", &json!({"exit": true}))["outcome"], "ended");
    run(&sandbox, "runs", "sleep 4711");
    assert_eq!(get(&sandbox, "runs")["status"], "running");
    sandbox.http.delete(&sandbox.path("/processes")).expect(204);
    assert_eq!(reported(), []);
    assert!(server.processes("sleep").is_empty());
}

/// Promises: J11.
#[test]
fn one_idempotency_key_starts_one_process() {
    let (_server, sandbox) = one();
    let keyed = Sandbox { http: sandbox.http.with("idempotency-key", "k1"), ..sandbox.clone() };
    let body = json!({"command": "sleep 1000"});
    let first = keyed.post("/processes", &body);
    let again = keyed.post("/processes", &body);
    assert_eq!(first.clone().expect(201).json()["pid"], again.clone().expect(201).json()["pid"]);
    assert_eq!(
        (first.header("idempotency-replayed"), again.header("idempotency-replayed")),
        (None, Some("true"))
    );
    let other = keyed.post("/processes", &json!({"command": "true"}));
    assert_eq!(other.expect(422).error(), "idempotency_mismatch");
}

/// Promises: J12.
#[test]
fn a_session_with_a_scope_has_its_processes_in_it() {
    let (server, sandbox) = one();
    sandbox.command("default", "mkdir -p docs secret; echo key >secret/key");
    let access = json!({"id": "one", "file_access": {"read": ["docs"], "write": []}});
    sandbox.post("/sessions", &access).expect(201);
    let body =
        json!({"id": "p", "session": "one", "command": "ls /workspace; setsid --wait sleep 4811"});
    start(&sandbox, &body);
    assert_eq!(wait(&sandbox, "p", &json!({"log": {"text": "docs"}}))["line"], "docs");
    assert_eq!(log(&sandbox, "p", 0)["stdout"], "docs\n");
    let listed = sandbox.http.get(&sandbox.path("/processes")).expect(200).json();
    assert_eq!(listed[0]["session"], "one");
    assert_eq!(kill(&sandbox, "p")["status"], "killed");
    run(&sandbox, "q", "sleep 4812");
    start(&sandbox, &json!({"id": "r", "session": "one", "command": "sleep 4813"}));
    sandbox.http.delete(&sandbox.path("/sessions/one")).expect(204);
    wait_until("its processes end with it", SOON, || {
        (server.processes("sleep").len() == 1).then_some(())
    });
    assert_eq!(get(&sandbox, "q")["status"], "running", "and no other");
    sandbox.http.get(&sandbox.path("/processes/r")).expect(404);
}

/// Promises: J13.
#[test]
fn a_thousand_rounds_of_start_and_kill_leave_nothing() {
    let (server, sandbox) = one();
    let agent = server.agent();
    let round = |n: usize| {
        let id = format!("p{n}");
        run(&sandbox, &id, "setsid sleep 4821 & sleep 4821");
        assert_eq!(kill(&sandbox, &id)["remains"], false);
    };
    let usage = || sandbox.info()["usage"]["pids"].clone();
    round(0);
    let before = process::descriptors(agent);
    let groups = server.cgroups().len();
    let own = process::descriptors(server.pid());
    (1..tries(1_000, 10_000)).for_each(round);
    wait_until("no descriptor is left", SOON, || {
        (process::descriptors(agent) <= before).then_some(())
    });
    assert!(process::descriptors(server.pid()) <= own + 8);
    assert_eq!((server.processes("sleep"), server.cgroups().len()), (vec![], groups));
    wait_until("no process is counted", SOON, || (usage() == 0).then_some(()));
    let folder = server.cgroups().into_iter().find(|group| group.join("tenant").is_dir());
    let folder = folder.expect("a group").join("tenant");
    wait_until("no group of a process is left", SOON, || {
        let mut left = std::fs::read_dir(&folder).expect("reads").flatten();
        (!left.any(|one| one.path().is_dir())).then_some(())
    });
    let listed = sandbox.http.get(&sandbox.path("/processes")).expect(200).json();
    assert_eq!(listed.as_array().expect("a list").len(), 128);
}

#[test]
fn a_wait_returns_groups_and_checks_the_exit_code() {
    let (_server, sandbox) = one();
    run(&sandbox, "p", "echo 'ready on port 8080'; exit 3");
    let line = wait(&sandbox, "p", &json!({"log": {"regex": "(?P<what>\\w+) (\\d+)(!)?"}}));
    assert_eq!(line["groups"], json!(["port 8080", "port", "8080", null]), "{line}");
    assert_eq!(line["named_groups"], json!({"what": "port"}), "{line}");
    let text = wait(&sandbox, "p", &json!({"log": {"text": "ready"}}));
    assert!(text.get("groups").is_none(), "{text}");
    let outcome = |codes: Value| {
        let body = json!({"exit": true, "exit_codes": codes});
        wait(&sandbox, "p", &body)["outcome"].clone()
    };
    assert_eq!(outcome(json!({"from": 1, "to": 3})), "met");
    assert_eq!(outcome(json!({"from": 3})), "met");
    assert_eq!(outcome(json!({"to": 2})), "ended");
    for bad in [json!({"from": 4, "to": 3}), json!({"from": 256}), json!({"low": 1})] {
        let body = json!({"exit": true, "exit_codes": bad});
        sandbox.post(&at("p", "/wait"), &body).expect(400);
    }
    let alone = json!({"log": {"text": "x"}, "exit_codes": {"to": 1}});
    sandbox.post(&at("p", "/wait"), &alone).expect(400);
}
