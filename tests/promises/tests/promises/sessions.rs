//! Sessions across a tenant's sandboxes: created, listed, and ended when their time is over.

use isolet_kit::{
    Http, LONG, Options, Outcome, Rows, SOON, Server, Shell, Start, Value, json, wait_until,
    with_growing_limit,
};
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
    idle_for(1)
}

/// A server whose sessions end `seconds` after their last command.
fn idle_for(seconds: u64) -> Server {
    Options::new().config(&format!("session_idle_s = {seconds}")).start()
}

/// Runs a command in a session's shell without an end; `None` if the session ended before it began.
fn endless(server: &Server, id: &str) -> Option<Shell> {
    let path = server.named("default").path(&format!("/shell?session={id}"));
    let mut shell = Shell::open(&server.http(), &path).ok()?;
    let run = json!({"type": "shell_run", "id": "endless", "command": "echo up; sleep 1000"});
    shell.try_send(&run).ok()?;
    let mut outcome = Outcome::default();
    shell.follow("endless", &mut outcome, |so_far| so_far.out == b"up\n");
    (outcome.out == b"up\n").then_some(shell)
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
    wait_until("the one that asks is the only shell", SOON, || {
        (sandbox.says("pgrep -c bash; true") == "1\n").then_some(())
    });
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
    let unlimited = http.post(below, &json!({"id": "kept", "ttl_s": 0})).expect(201).json();
    assert_eq!((&unlimited["ttl_s"], &unlimited["expires_at_ms"]), (&Value::Null, &Value::Null));
    for bad in [json!(-1), json!(31_622_401), json!(1.5), Value::Null, json!("1")] {
        let refused = http.post(below, &json!({"ttl_s": bad})).expect(400).json();
        assert!(refused["message"].as_str().unwrap().contains("ttl_s"), "{refused}");
    }
    let there = |id: &str| http.get(&format!("{below}/{id}")).status == 200;
    with_growing_limit(2, |ttl_s| {
        let id = format!("short-{ttl_s}");
        let made = http.post(below, &json!({"id": id, "ttl_s": ttl_s})).expect(201).json();
        assert_eq!(made["ttl_s"], ttl_s);
        let end =
            made["created_at_ms"].as_i64().expect("ms") + i64::try_from(ttl_s).unwrap() * 1000;
        assert_eq!(made["expires_at_ms"], end);
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let over = || now().as_millis() as i64 >= end;
        let shell = endless(&server, &id);
        let bulk = http.delete("/v1/sessions?older_than=0s").expect(200).json();
        assert_eq!(bulk, json!({"deleted": 0}));
        assert_eq!(http.get("/v1/sessions").json(), json!([]));
        http.get(&format!("/v1/sessions/{id}")).expect(404);
        if shell.is_none() || over() {
            assert!(over(), "not before its time");
            // A call that came too late may have created another one.
            http.delete(&format!("{below}/{id}"));
            return None;
        }
        wait_until("it ends", LONG, || (!there(&id)).then_some(()));
        assert!(over(), "not before its time");
        Some(())
    });
    assert!(there("kept"));
    wait_until("its command too", SOON, || {
        let left = server.named("default").says("pgrep -x sleep || echo none");
        (left == "none\n").then_some(())
    });
}

/// Promises: P13.
#[test]
fn a_session_is_busy_while_its_program_runs() {
    with_growing_limit(1, busy_for_three_times);
}

/// Runs a program for three times as long as a session may be idle; `None` if the session ended
/// before the program began, or before it was looked at after the program.
fn busy_for_three_times(idle_s: u64) -> Option<()> {
    let idle = Duration::from_secs(idle_s);
    let server = idle_for(idle_s);
    let http = server.http();
    let begun = Instant::now();
    let made = make(&http, &json!({}));
    let running = std::thread::spawn({
        let http = server.http();
        let made = made.clone();
        move || {
            let program =
                json!({"command": format!("sleep {}", idle_s * 3), "session": made["id"]});
            http.post("/v1/sandboxes/default/exec", &program)
        }
    });
    let busy = wait_until("it is busy or has ended", SOON, || {
        let seen = http.get(&at(&made));
        (seen.status == 404 || seen.json()["busy"] == true).then_some(seen.status != 404)
    });
    let deleted = http.delete("/v1/sessions?status=idle").expect(200).json();
    let answer = running.join().expect("it runs");
    if !busy {
        assert!(begun.elapsed() >= idle, "it ended before its time");
        return None;
    }
    assert_eq!(deleted, json!({"deleted": 0}));
    let answer = answer.expect(200).json();
    assert_eq!((&answer["exit_code"], &answer["session"]), (&json!(0), &made["id"]), "{answer}");
    let after = http.get(&at(&made));
    if after.status == 404 {
        assert!(begun.elapsed() >= idle * 4, "it ended with its program");
        return None;
    }
    let after = after.expect(200).json();
    assert_eq!(after["busy"], false, "once it is answered");
    let [first, last] = [&made, &after].map(|one| one["last_activity"].as_f64().unwrap());
    let least = (idle * 3).as_secs_f64();
    assert!(last >= first + least, "the end of a program counts as use: {first}, {last}");
    wait_until("it ends after it", LONG, || (!is_there(&http, &made)).then_some(()));
    Some(())
}

/// Promises: P13.
#[test]
fn the_end_of_a_session_ends_its_programs() {
    let server = Server::start();
    let http = server.http();
    with_growing_limit(2, |ttl_s| ends_its_program(&server, Some(ttl_s)));
    ends_its_program(&server, None).expect("it has a long time");
    assert_eq!(http.get("/v1/sessions").json(), json!([]));
}

/// Ends a session whose program runs, by its lifetime or by a call; `None` if the lifetime was over
/// before the program began.
fn ends_its_program(server: &Server, ttl_s: Option<u64>) -> Option<()> {
    let http = server.http();
    let begun = Instant::now();
    let made = make(&http, &json!({"ttl": ttl_s.unwrap_or(1000), "persistent": true}));
    let running = std::thread::spawn({
        let http = server.http();
        let made = made.clone();
        move || {
            let program = json!({"command": "sleep 1000", "session": made["id"]});
            http.post("/v1/sandboxes/default/exec", &program)
        }
    });
    wait_until("it is busy or was", SOON, || {
        let busy = http.get(&at(&made)).json()["busy"] == true;
        (busy || running.is_finished()).then_some(())
    });
    if ttl_s.is_none() {
        http.delete(&at(&made)).expect(204);
    }
    let ended = running.join().expect("it is answered");
    let over = ttl_s.is_some_and(|ttl_s| begun.elapsed() >= Duration::from_secs(ttl_s));
    if ended.status == 404 && over {
        return None;
    }
    assert_eq!(ended.expect(409).error(), "session_ended");
    assert!(ttl_s.is_none() || over, "it ended before its time");
    wait_until("the program has ended", SOON, || {
        let left = server.named("default").exec("pgrep -x sleep || echo none");
        (left["stdout"] == "none\n").then_some(())
    });
    assert!(!is_there(&http, &made));
    Some(())
}

/// Promises: P3.
#[test]
fn a_session_ends_after_its_last_command_and_not_during_one() {
    with_growing_limit(1, ends_after_three_times);
}

/// Runs a command for three times as long as a session may be idle; `None` if its session ended
/// before it began, or before it was looked at after the command.
fn ends_after_three_times(idle_s: u64) -> Option<()> {
    let idle = Duration::from_secs(idle_s);
    let server = idle_for(idle_s);
    let http = server.http();
    let began = Instant::now();
    let [unused, working, unlimited] =
        [json!({}), json!({}), json!({"persistent": true})].map(|spec| make(&http, &spec));
    let slow = std::thread::spawn({
        let http = server.http();
        let path = format!("{}/exec", at(&working));
        move || http.post(&path, &json!({"command": format!("sleep {}", idle_s * 3)}))
    });
    wait_until("the unused one ends", LONG, || (!is_there(&http, &unused)).then_some(()));
    assert!(began.elapsed() >= idle, "{:?}", began.elapsed());
    let busy = wait_until("it is busy or has ended", SOON, || {
        let seen = http.get(&at(&working));
        (seen.status == 404 || seen.json()["busy"] == true).then_some(seen.status != 404)
    });
    let ran = slow.join().expect("it is answered");
    if !busy {
        assert!(ran.status == 404 || began.elapsed() >= idle * 4, "{}", ran.text());
        return None;
    }
    assert_eq!(ran.expect(200).json()["exit_code"], 0);
    let seen = wait_until("it is reported", SOON, || {
        let seen = http.get(&at(&working));
        (seen.status == 404 || seen.json()["busy"] == false).then_some(seen)
    });
    if seen.status == 404 {
        assert!(began.elapsed() >= idle * 4, "it ended with its command");
        return None;
    }
    wait_until("it ends after it", LONG, || (!is_there(&http, &working)).then_some(()));
    assert!(began.elapsed() >= idle * 4, "{:?}", began.elapsed());
    assert!(is_there(&http, &unlimited), "a persistent one stays");
    Some(())
}

/// Promises: P3.
#[test]
fn an_attached_client_postpones_the_end() {
    with_growing_limit(1, attached_for_twice);
}

/// Attaches to a session for more than twice as long as it may be idle; `None` if it ended before.
fn attached_for_twice(idle_s: u64) -> Option<()> {
    let idle = Duration::from_secs(idle_s);
    let server = idle_for(idle_s);
    let http = server.http();
    let begun = Instant::now();
    let made = make(&http, &json!({}));
    let id = made["id"].as_str().expect("an id");
    let path = server.named("default").path(&format!("/shell?session={id}"));
    let Ok(mut shell) = Shell::open(&http, &path) else {
        assert!(begun.elapsed() >= idle, "it ended before its time");
        return None;
    };
    shell.run("echo here").is("here\n", 0);
    std::thread::sleep(idle * 5 / 2);
    assert!(is_there(&http, &made));
    shell.run("echo still").is("still\n", 0);
    drop(shell);
    wait_until("it ends without it", LONG, || (!is_there(&http, &made)).then_some(()));
    Some(())
}

/// Promises: P4.
#[test]
fn a_ttl_ends_a_session_also_in_the_middle_of_a_command() {
    let server = Server::start();
    let http = server.http();
    with_growing_limit(1, |ttl_s| {
        let begun = Instant::now();
        let made = make(&http, &json!({"ttl": ttl_s, "persistent": true}));
        let shell = endless(&server, made["id"].as_str().expect("an id"));
        wait_until("it ends", LONG, || (!is_there(&http, &made)).then_some(()));
        assert!(begun.elapsed() >= Duration::from_secs(ttl_s), "{:?}", begun.elapsed());
        shell.map(drop)
    });
    wait_until("its command too", SOON, || {
        let left = server.named("default").says("pgrep -x sleep || echo none");
        (left == "none\n").then_some(())
    });
}

/// Promises: P4.
#[test]
fn a_ttl_counts_across_a_restart() {
    let mut server = hasty();
    let unlimited = make(&server.http(), &json!({"persistent": true}));
    with_growing_limit(3, |ttl_s| {
        let begun = Instant::now();
        let [made, idle] = [json!({"ttl": ttl_s, "persistent": true}), json!({})]
            .map(|spec| make(&server.http(), &spec));
        server.kill();
        server.launch();
        server.wait_until_ready();
        let http = server.http();
        let in_time = is_there(&http, &made);
        let over = || begun.elapsed() >= Duration::from_secs(ttl_s);
        assert!(in_time || over(), "it ended before its time");
        wait_until("both end", LONG, || {
            (!is_there(&http, &made) && !is_there(&http, &idle)).then_some(())
        });
        assert!(over(), "it ended before its time");
        in_time.then_some(())
    });
    assert!(is_there(&server.http(), &unlimited));
}

/// Promises: P0, P6.
#[test]
fn bulk_deletes_end_sessions_that_match_every_filter() {
    with_growing_limit(1, bulk_deletes_after);
}

/// Deletes sessions that were not used for `seconds`; `None` if that is true of all of them.
fn bulk_deletes_after(seconds: u64) -> Option<()> {
    let server = Server::start();
    let http = server.http();
    let [busy, old, young] = [0, 1, 2].map(|_| make(&http, &json!({"persistent": true})));
    let id = busy["id"].as_str().expect("an id");
    let mut shell = server.named("default").session(id);
    let command = shell.start(Start::new("sleep 1000"));
    wait_until("it is busy", SOON, || (http.get(&at(&busy)).json()["busy"] == true).then_some(()));
    std::thread::sleep(Duration::from_millis(seconds * 1000 + 100));
    let bulk = |query: &str| {
        http.delete(&format!("/v1/sessions?{query}")).expect(200).json()["deleted"].clone()
    };
    assert_eq!(bulk("status=idle&older_than=1h30m"), 0);
    let used = Instant::now();
    run(&http, &young, "true");
    let deleted = bulk(&format!("status=idle&older_than={seconds}s"));
    if used.elapsed() >= Duration::from_secs(seconds) {
        return None;
    }
    assert_eq!(deleted, 1);
    assert!(!is_there(&http, &old) && is_there(&http, &young) && is_there(&http, &busy));
    assert_eq!(bulk("status=idle"), 1);
    assert!(!is_there(&http, &young) && is_there(&http, &busy));
    shell.cancel(&command);
    shell.finish(&command);
    assert_eq!(bulk("older_than=0s"), 1);
    assert_eq!(http.get("/v1/sessions").json(), json!([]));
    Some(())
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
