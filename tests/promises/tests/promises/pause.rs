//! A paused sandbox keeps everything that ran in it, and continues where it was.

use isolet_kit::{
    Http, Rows, SOON, Sandbox, Server, Start, Stream, Value, json, one, process, wait_until,
    with_growing_limit,
};
use std::thread;
use std::time::{Duration, Instant};

/// A loop that uses processor time and counts.
const LOOP: &str = "N=7; f() { echo f$N; }; (while :; do :; done) & disown; sleep 4712 & echo up";

fn state(sandbox: &Sandbox) -> String {
    sandbox.info()["state"].as_str().expect("a text").to_owned()
}

fn pause(sandbox: &Sandbox) {
    let paused = sandbox.post("/pause", &json!({})).expect(200).json();
    assert_eq!(paused["state"], "paused", "{paused}");
}

fn resume(sandbox: &Sandbox) {
    let running = sandbox.post("/resume", &json!({})).expect(200).json();
    assert_eq!(running["state"], "running", "{running}");
}

fn cpu_ms(sandbox: &Sandbox) -> f64 {
    sandbox.info()["usage"]["cpu_ms"].as_f64().expect("its usage")
}

fn names(mut stream: Stream, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|name| name != last) {
        seen.push(stream.event().unwrap_or_else(|| panic!("it ended after {seen:?}")).name);
    }
    seen
}

/// Promises: L15.
#[test]
fn a_pause_stops_everything_and_a_resume_continues_it() {
    let (server, sandbox) = one();
    let events = server.http().try_open("GET", &sandbox.path("/events"), None).expect("an answer");
    assert_eq!(sandbox.command("s", LOOP)["stdout"], "up\n");
    let sleeper = wait_until("the job runs", SOON, || server.processes("sleep").first().copied());
    let mut shell = sandbox.shell();
    shell.run("X=kept").is("", 0);
    wait_until("the loop uses processor time", SOON, || (cpu_ms(&sandbox) > 100.0).then_some(()));
    pause(&sandbox);
    pause(&sandbox);
    let before = cpu_ms(&sandbox);
    let waiting = shell.start(Start::new("echo $X"));
    thread::sleep(Duration::from_millis(700));
    assert!(cpu_ms(&sandbox) - before < 1.0, "a process runs in a paused sandbox");
    assert!(shell.next(Duration::from_millis(1)).is_none(), "its shell answers");
    resume(&sandbox);
    resume(&sandbox);
    shell.finish(&waiting).is("kept\n", 0);
    wait_until("the loop continues", SOON, || (cpu_ms(&sandbox) > before + 50.0).then_some(()));
    let after = sandbox.command("s", "f; jobs -r | wc -l; kill $!");
    assert_eq!(after["stdout"], "f7\n1\n", "{after}");
    assert!(after.get("lost").is_none(), "{after}");
    wait_until("the same process ended", SOON, || (!process::alive(sleeper)).then_some(()));
    sandbox.delete();
    let seen = names(events, "destroyed");
    let moves = ["paused", "resumed", "running", "destroyed"];
    let moved: Vec<_> = seen.iter().filter(|name| moves.contains(&name.as_str())).collect();
    assert_eq!(moved, moves.iter().collect::<Vec<_>>(), "{seen:?}");
    let audit = server.http().get("/v1/audit").expect(200).text();
    for event in ["sandbox.pause", "sandbox.paused", "sandbox.resume", "sandbox.resumed"] {
        assert!(audit.contains(&format!("\"event\":\"{event}\"")), "{event}: {audit}");
    }
    server.healthy();
}

/// Promises: L16.
#[test]
fn timeouts_do_not_count_a_pause() {
    let (server, sandbox) = one();
    with_growing_limit(3000, |limit_ms| paused_for_longer_than(limit_ms, &server, &sandbox));
    server.healthy();
}

/// Pauses programs for longer than their timeouts; `None` if they ran for half of that before.
fn paused_for_longer_than(limit_ms: u64, server: &Server, sandbox: &Sandbox) -> Option<()> {
    let limit = Duration::from_millis(limit_ms);
    let ids = ["quick", "slow"].map(|name| format!("{name}-{limit_ms}"));
    let in_time = "until [ -e /workspace/go ]; do sleep 0.05; done; echo done";
    let timed = |command: &str| Start::new(command).with("timeout_ms", limit_ms);
    sandbox.exec("rm -f /workspace/go");
    let begun = Instant::now();
    let mut shell = sandbox.shell();
    let quick = shell.start(timed(&format!("touch /workspace/one; {in_time}")));
    let mut slow_shell = sandbox.shell();
    let slow = slow_shell.start(timed("touch /workspace/two; sleep 1001"));
    let program = {
        let http = sandbox.http.clone();
        let path = sandbox.path("/exec");
        let command = format!("touch /workspace/three; {in_time}");
        let body = json!({"command": command, "timeout_ms": limit_ms});
        thread::spawn(move || http.post(&path, &body).expect(200).json())
    };
    for (id, command) in ids.iter().zip([in_time, "sleep 1002"]) {
        let body = json!({"id": id, "command": command, "timeout_ms": limit_ms});
        sandbox.post("/processes", &body).expect(201);
    }
    wait_until("all run", SOON, || {
        (sandbox.says("ls /workspace") == "one\nthree\ntwo\n").then_some(())
    });
    pause(sandbox);
    // They have run for no longer than this.
    let before = begun.elapsed();
    thread::sleep(limit + Duration::from_millis(500));
    let resumed = Instant::now();
    resume(sandbox);
    sandbox.exec("touch /workspace/go; rm /workspace/one /workspace/two /workspace/three");
    let ended = shell.finish(&quick);
    let program = program.join().expect("it is answered");
    let of =
        |id: &str| server.http().get(&sandbox.path(&format!("/processes/{id}"))).expect(200).json();
    let process = wait_until("the process is through", SOON, || {
        Some(of(&ids[0])).filter(|process| process["status"] != "running")
    });
    let other = of(&ids[1]);
    let in_time = before * 2 < limit && before + resumed.elapsed() < limit;
    // What does not end is still ended by its timeout, after the rest of its time.
    let stopped = slow_shell.finish(&slow);
    let rest = resumed.elapsed();
    assert_ne!(stopped.code, Some(0), "{stopped:?}");
    wait_until("the other process too", SOON, || (of(&ids[1])["timed_out"] == true).then_some(()));
    if !in_time {
        return None;
    }
    ended.is("done\n", 0);
    assert_eq!((&program["stdout"], &program["exit_code"]), (&json!("done\n"), &json!(0)));
    let took = program["duration_ms"].as_f64().expect("a number");
    assert!(took < limit.as_secs_f64() * 1000.0, "{program}");
    assert_eq!((&process["exit_code"], &process["timed_out"]), (&json!(0), &json!(false)));
    assert_eq!(other["status"], "running", "{other}");
    assert!(rest + before + Duration::from_millis(50) >= limit, "{rest:?} after {before:?}");
    Some(())
}

/// Promises: L17.
#[test]
fn a_call_resumes_a_paused_sandbox_only_if_it_may() {
    let mut server = Server::start();
    let reads = server.add_key(&["--tenant", "default", "--read-only"]);
    let reader = Http::new(server.port(), Some(&reads));
    let http = server.http();
    let sandbox = server.sandbox();
    assert_eq!(sandbox.info()["auto_resume"], false);
    sandbox.command("s", "echo x >/workspace/x");
    let work = |sandbox: &Sandbox| sandbox.post("/exec", &json!({"command": "echo works"}));
    pause(&sandbox);
    for (rest, body) in [
        ("/exec", json!({"command": "true"})),
        ("/processes", json!({"command": "true"})),
        ("/sessions/s/exec", json!({"command": "true"})),
        ("/files", json!({"op": "mkdir", "path": "d"})),
    ] {
        let refused = sandbox.post(rest, &body).expect(409);
        assert_eq!(refused.error(), "sandbox_paused", "{rest}: {}", refused.text());
        assert!(refused.text().contains("resume"), "{}", refused.text());
    }
    assert_eq!(sandbox.try_open("").err(), Some(409));
    assert_eq!(http.delete(&sandbox.path("/sessions/s")).expect(409).error(), "sandbox_paused");
    let patched = http.patch(&sandbox.path(""), &json!({"auto_resume": true})).expect(200).json();
    assert_eq!((&patched["state"], &patched["auto_resume"]), (&json!("paused"), &json!(true)));
    let mut rows = Rows::new();
    for rest in [
        "",
        "/sessions",
        "/sessions/s",
        "/files/x",
        "/files/?list",
        "/processes",
        "/terminals",
        "/contexts",
        "/network",
        "/links",
        "/ports/8000/",
    ] {
        for caller in [&http, &reader] {
            rows.row(&format!("GET {rest}"), || {
                let reply = caller.get(&sandbox.path(rest));
                assert!(reply.status < 500, "{}", reply.text());
                assert_eq!(state(&sandbox), "paused");
            });
        }
    }
    drop(rows);
    assert_eq!(http.get(&sandbox.path("/files/x")).expect(409).error(), "sandbox_paused");
    let mut events = http.try_open("GET", &sandbox.path("/events"), None).expect("an answer");
    http.post(&sandbox.path("/links"), &json!({"port": 8000}));
    assert_eq!(state(&sandbox), "paused");
    assert_eq!(work(&sandbox).expect(200).json()["stdout"], "works\n");
    assert_eq!(events.event().expect("an event").name, "resumed");
    assert_eq!(state(&sandbox), "running");
    let own = server.sandbox_with(&json!({"auto_resume": true}));
    assert_eq!(own.info()["auto_resume"], true);
    pause(&own);
    assert_eq!(own.command("s", "echo in it")["stdout"], "in it\n");
    server.healthy();
}

/// Promises: L18.
#[test]
fn a_killed_server_finds_a_paused_sandbox_paused() {
    let (mut server, sandbox) = one();
    assert_eq!(sandbox.command("s", LOOP)["stdout"], "up\n");
    with_growing_limit(2500, |limit_ms| {
        let limit = Duration::from_millis(limit_ms);
        let id = format!("p-{limit_ms}");
        let body = json!({"id": id, "command": "exec sleep 1003", "timeout_ms": limit_ms});
        let begun = Instant::now();
        sandbox.post("/processes", &body).expect(201);
        let agent = server.agent();
        wait_until("both run", SOON, || (server.processes("sleep").len() == 2).then_some(()));
        let loops = server.processes("sleep");
        pause(&sandbox);
        let ran = begun.elapsed();
        let before = cpu_ms(&sandbox);
        server.restart();
        assert_eq!(state(&sandbox), "paused");
        thread::sleep(limit + Duration::from_millis(500));
        assert!(cpu_ms(&sandbox) - before < 1.0, "the next server let it run");
        assert_eq!(
            sandbox.post("/exec", &json!({"command": "true"})).expect(409).error(),
            "sandbox_paused"
        );
        server.restart();
        assert_eq!(state(&sandbox), "paused");
        let resumed = Instant::now();
        resume(&sandbox);
        let path = sandbox.path(&format!("/processes/{id}"));
        let process = server.http().get(&path).expect(200).json();
        let now = (server.agent(), server.processes("sleep"));
        if ran + resumed.elapsed() >= limit {
            server.http().delete(&path).expect(204);
            return None;
        }
        assert_eq!(process["status"], "running", "its timeout does not count the pause: {process}");
        assert_eq!(now, (agent, loops));
        Some(())
    });
    let after = sandbox.command("s", "f; jobs -r | wc -l");
    assert_eq!(after["stdout"], "f7\n1\n", "{after}");
    assert!(after.get("lost").is_none(), "{after}");
    pause(&sandbox);
    resume(&sandbox);
    assert_eq!(sandbox.says("echo again"), "again\n");
    server.healthy();
}

/// A busy sandbox that is paused and has this lifetime; `None` if that was over before the pause.
fn paused_with(ttl_s: u64, server: &Server) -> Option<Sandbox> {
    let begun = Instant::now();
    let made = server.http().post("/v1/sandboxes", &json!({"ttl_s": ttl_s}));
    let id = made.json()["id"].as_str().unwrap_or_default().to_owned();
    let sandbox = server.named(&id);
    // Too late, this call creates another one.
    let paused = made.status == 201
        && sandbox.post("/sessions/s/exec", &json!({"command": LOOP})).status == 200
        && sandbox.post("/pause", &json!({})).status == 200
        && begun.elapsed() < Duration::from_secs(ttl_s);
    if paused {
        return Some(sandbox);
    }
    assert!(begun.elapsed() >= Duration::from_secs(ttl_s), "{}", made.text());
    server.http().delete(&sandbox.path(""));
    None
}

/// Promises: L18.
#[test]
fn a_paused_sandbox_is_deleted_by_a_client_and_by_its_ttl() {
    let mut server = Server::start();
    let http = server.http();
    let mut rows = Rows::new();
    rows.row("a delete", || {
        let sandbox = server.sandbox();
        sandbox.command("s", LOOP);
        pause(&sandbox);
        let gone = http.delete(&sandbox.path("")).expect(200).json();
        assert_eq!(gone["state"], "destroyed");
        server.wait_until_tidy();
    });
    rows.row("its ttl", || {
        let sandbox = with_growing_limit(2, |ttl_s| paused_with(ttl_s, &server));
        wait_until("it is gone", SOON, || {
            (http.get(&sandbox.path("")).status == 404).then_some(())
        });
        server.wait_until_tidy();
    });
    drop(rows);
    let sandbox = with_growing_limit(3, |ttl_s| paused_with(ttl_s, &server));
    server.restart();
    wait_until("its ttl ends it after a restart too", SOON, || {
        (server.http().get(&sandbox.path("")).status == 404).then_some(())
    });
    server.healthy();
}

/// Promises: L18.
#[test]
fn a_paused_sandbox_whose_host_was_rebooted_is_asleep() {
    let (mut server, sandbox) = one();
    sandbox.command("s", "echo kept >/workspace/a; A=1");
    pause(&sandbox);
    server.reboot();
    assert_eq!(state(&sandbox), "sleeping");
    assert_eq!(sandbox.post("/resume", &json!({})).expect(200).json()["state"], "sleeping");
    assert_eq!(sandbox.post("/pause", &json!({})).expect(409).error(), "sandbox_sleeping");
    let first = sandbox.command("s", "cat /workspace/a");
    assert_eq!(first["stdout"], "kept\n", "{first}");
    assert!(first["lost"].as_array().is_some_and(|lost| lost.contains(&json!("processes"))));
    server.healthy();
}

/// Promises: L19.
#[test]
fn a_sleep_of_a_paused_sandbox_saves_its_shells() {
    let (server, sandbox) = one();
    sandbox.command("s", "A=of-the-shell; cd /tmp");
    pause(&sandbox);
    wait_until("it sleeps", SOON, || {
        let reply = sandbox.post("/sleep", &json!({}));
        assert!(matches!(reply.status, 200 | 409), "{}", reply.text());
        (reply.status == 200).then_some(())
    });
    assert_eq!(state(&sandbox), "sleeping");
    assert_eq!(sandbox.command("s", "echo $A; pwd")["stdout"], "of-the-shell\n/tmp\n");
    let mut shell = sandbox.shell();
    shell.run("B=2").is("", 0);
    pause(&sandbox);
    assert_eq!(sandbox.post("/sleep", &json!({})).expect(409).error(), "sandbox_in_use");
    assert_eq!(state(&sandbox), "paused", "a client is attached, so it stays paused");
    resume(&sandbox);
    shell.run("echo $B").is("2\n", 0);
    server.healthy();
}

/// Promises: L19.
#[test]
fn a_paused_sandbox_is_in_a_backup_and_stays_paused() {
    let (server, sandbox) = one();
    sandbox.command("s", &format!("echo kept >/workspace/a; {LOOP}"));
    pause(&sandbox);
    let before = cpu_ms(&sandbox);
    let backup = server.data().parent().expect("a folder").join("paused-backup");
    let done = server.command(&["backup", backup.to_str().expect("a text")]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let manifest = std::fs::read_to_string(backup.join("manifest.json")).expect("it is complete");
    let manifest: Value = manifest.parse().expect("JSON");
    assert_eq!(manifest["sandboxes"][0]["state"], "paused", "{manifest}");
    std::fs::remove_dir_all(&backup).expect("removed");
    assert_eq!(state(&sandbox), "paused");
    assert!(cpu_ms(&sandbox) - before < 1.0, "it ran during the backup");
    resume(&sandbox);
    assert_eq!(sandbox.command("s", "cat /workspace/a; f")["stdout"], "kept\nf7\n");
    server.healthy();
}

/// Promises: L17.
#[test]
fn a_session_with_a_scope_is_paused_too() {
    let (mut server, sandbox) = one();
    let spec = json!({"id": "v", "file_access": {"write": ["mine"]}});
    let made = sandbox.post("/sessions", &spec);
    assert!(made.status == 201, "{}", made.text());
    assert_eq!(sandbox.command("v", "A=scoped; echo up")["stdout"], "up\n");
    let mut shell = sandbox.session("v");
    with_growing_limit(2000, |limit_ms| {
        let limit = Duration::from_millis(limit_ms);
        sandbox.exec("rm -f /workspace/mine/*");
        let text = "cd /workspace/mine; touch up; until [ -e go ]; do sleep 0.05; done; echo done";
        let begun = Instant::now();
        let slow = shell.start(Start::new(text).with("timeout_ms", limit_ms));
        wait_until("it runs", SOON, || {
            (sandbox.http.get(&sandbox.path("/files/mine/up")).status == 200).then_some(())
        });
        pause(&sandbox);
        let ran = begun.elapsed();
        thread::sleep(limit + Duration::from_millis(500));
        let other = json!({"id": "w", "file_access": {"write": ["other"]}});
        assert_eq!(sandbox.post("/sessions", &other).expect(409).error(), "sandbox_paused");
        server.sandbox().says("echo the launcher waits for nothing");
        let resumed = Instant::now();
        resume(&sandbox);
        sandbox.exec("touch /workspace/mine/go");
        let ended = shell.finish(&slow);
        if ran + resumed.elapsed() >= limit {
            return None;
        }
        ended.is("done\n", 0);
        Some(())
    });
    drop(shell);
    pause(&sandbox);
    server.restart();
    resume(&sandbox);
    assert_eq!(sandbox.command("v", "echo $A")["stdout"], "scoped\n");
    server.healthy();
}
