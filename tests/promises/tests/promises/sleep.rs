//! An idle sandbox falls asleep and wakes for the next call with the state that was promised.

use isolet_kit::{Rows, SOON, Sandbox, Server, Start, Value, json, one, wait_until};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

fn state(sandbox: &Sandbox) -> Value {
    sandbox.info()["state"].clone()
}

fn asleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || (state(sandbox) == "sleeping").then_some(()));
}

/// Requests sleep as soon as the earlier clients have disconnected.
fn put_to_sleep(sandbox: &Sandbox) {
    wait_until("it can be put to sleep", SOON, || {
        let reply = sandbox.post("/sleep", &json!({}));
        assert!(matches!(reply.status, 200 | 409), "{}", reply.text());
        (reply.status == 200).then_some(())
    });
    assert_eq!(state(sandbox), "sleeping");
}

/// Promises: L1, H5.
#[test]
fn an_idle_sandbox_falls_asleep_and_frees_its_resources() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"sleep_after_s": 1}));
    assert_eq!(sandbox.info()["sleep_after_s"], 1);
    sandbox.command(
        "s",
        "sleep 4711 & disown; echo kept >/workspace/a; echo b >/usr/local/b; cd /tmp",
    );
    asleep(&sandbox);
    wait_until("none of its processes runs", SOON, || {
        let traces = server.traces();
        assert_eq!(traces.directories.len(), 1, "its files stay");
        (traces.groups.is_empty() && traces.mounts.is_empty()).then_some(())
    });
    let sleep_after = |seconds: u64| {
        let change = json!({"sleep_after_s": seconds});
        server.http().patch(&sandbox.path(""), &change).expect(200);
    };
    sleep_after(600);
    let first = sandbox.command("s", "cat /workspace/a /usr/local/b; pwd; pgrep -c sleep");
    assert_eq!(first["stdout"], "kept\nb\n/tmp\n0\n", "{first}");
    assert_eq!(first["lost"], json!(["processes"]), "{first}");
    assert_eq!(state(&sandbox), "running");
    assert!(sandbox.command("s", "true").get("lost").is_none(), "reported once");
    sleep_after(1);
    asleep(&sandbox);
    sandbox.delete();
    server.healthy();
}

/// Promises: L2.
#[test]
fn a_sandbox_in_use_does_not_sleep() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"sleep_after_s": 1}));
    let mut rows = Rows::new();
    let refused = || {
        let reply = sandbox.post("/sleep", &json!({})).expect(409);
        assert_eq!(reply.error(), "sandbox_in_use");
    };
    rows.row("a program", || {
        let path = sandbox.path("/events");
        let mut events = sandbox.http.try_open("GET", &path, None).expect("an answer");
        assert_eq!(sandbox.says("sleep 2.5; echo on"), "on\n");
        // It may have slept before the program began.
        let mut next = || events.event().expect("it goes on").name;
        while next() != "command_started" {}
        assert_eq!(next(), "command_exited", "nothing happens while the program runs");
    });
    rows.row("a command whose client has gone", || {
        let mut shell = sandbox.session("s");
        shell.start(Start::new("echo begun; sleep 2.5; echo done >/workspace/done; sleep 1000"));
        shell.next(SOON).expect("it begins");
        drop(shell);
        wait_until("it goes on", SOON, || (server.processes("sleep").len() == 1).then_some(()));
        refused();
        wait_until("it could not be put to sleep", SOON, || {
            assert_eq!(state(&sandbox), "running");
            let reported = server.processes("sleep");
            (reported.len() == 1 && isolet_kit::process::arguments(reported[0]).contains("1000"))
                .then_some(())
        });
        sandbox.http.delete(&sandbox.path("/sessions/s")).expect(204);
    });
    rows.row("a client that is attached", || {
        let mut shell = sandbox.shell();
        shell.run("X=1").is("", 0);
        refused();
        assert_eq!(sandbox.says("sleep 2; echo other"), "other\n");
        shell.run("echo $X").is("1\n", 0);
    });
    drop(rows);
    asleep(&sandbox);
}

/// Promises: L3.
#[test]
fn reading_a_sandbox_does_not_wake_it() {
    let server = Server::start();
    let sandbox = server.sandbox();
    sandbox.command("dev", "true");
    put_to_sleep(&sandbox);
    assert!(sandbox.info().get("usage").is_none());
    let http = server.http();
    http.get("/v1/sandboxes").expect(200);
    http.get(&sandbox.path("/sessions")).expect(200);
    let dev = http.get(&sandbox.path("/sessions/dev")).expect(200).json();
    assert_eq!((&dev["shell_pid"], &dev["busy"]), (&Value::Null, &json!(false)));
    let change = json!({"metadata": {"a": 1}, "memory_mib": 128, "sleep_after_s": null});
    let changed = http.patch(&sandbox.path(""), &change).expect(200).json();
    assert_eq!((&changed["state"], &changed["sleep_after_s"]), (&json!("sleeping"), &Value::Null));
    http.delete(&sandbox.path("/sessions/dev")).expect(204);
    sandbox.post("/sleep", &json!({})).expect(200);
    assert_eq!(state(&sandbox), "sleeping");
    wait_until("none of its processes runs", SOON, || server.agents().is_empty().then_some(()));
    // Changed settings apply from the next wake-up.
    let hungry = sandbox.exec("python3 -c 'x = bytearray(200 << 20); print(len(x))'");
    assert_eq!((&hungry["stdout"], &hungry["oom"]), (&json!(""), &json!(true)), "{hungry}");
    put_to_sleep(&sandbox);
    sandbox.delete();
    assert_eq!(http.get(&sandbox.path("")).status, 404);
    server.healthy();
}

/// Promises: L4, H6.
#[test]
fn an_ephemeral_sandbox_loses_everything_when_it_sleeps() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"persistent": false, "env": {"A": "a"}}));
    assert_eq!(sandbox.info()["persistent"], false);
    for turn in 0..3 {
        sandbox.exec("mkdir -p /workspace/d; echo x >/workspace/d/x; echo y >/root/y");
        put_to_sleep(&sandbox);
        wait_until("its files are gone", SOON, || {
            let traces = server.traces();
            (traces.directories.is_empty() && traces.trash == 0).then_some(())
        });
        let first = sandbox.exec("ls -A /workspace /root/y; echo $A");
        assert_eq!(first["stdout"], "/workspace:\na\n", "{turn}: {first}");
        assert_eq!(first["lost"], json!(["files"]), "{first}");
    }
    sandbox.delete();
    server.healthy();
}

/// Promises: L5.
#[test]
fn concurrent_callers_wake_a_sandbox_once() {
    let (server, sandbox) = one();
    sandbox.exec("echo 0 >/workspace/count");
    for _ in 0..5 {
        put_to_sleep(&sandbox);
        let reported = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for n in 0..12 {
                let one = sandbox.clone();
                let reported = &reported;
                scope.spawn(move || {
                    let answer = one.command(&format!("s{n}"), "cat /workspace/count");
                    assert_eq!(answer["stdout"], "0\n", "{answer}");
                    let lost = answer.get("lost").is_some();
                    reported.fetch_add(usize::from(lost), std::sync::atomic::Ordering::Relaxed);
                });
            }
        });
        assert_eq!(reported.into_inner(), 1, "exactly one gets the notice of what was lost");
        assert_eq!(server.agents().len(), 1);
    }
    server.wait_until_tidy();
}

/// Every call either precedes the sleep or wakes the sandbox: none is refused and none is lost.
/// Promises: L6.
#[test]
fn a_call_that_races_the_sleep_is_carried_out() {
    let (server, sandbox) = one();
    let slept = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let end = Instant::now() + SOON;
            let enough = |n| n >= 60 && slept.load(Ordering::Relaxed) > 5;
            for n in (0..).take_while(|n| !enough(*n)) {
                assert!(Instant::now() < end, "it slept {slept:?} times");
                assert_eq!(sandbox.says(&format!("echo {n}")), format!("{n}\n"));
                let text = format!("echo {n} >>/workspace/all; wc -l </workspace/all");
                assert_eq!(sandbox.command("s", &text)["stdout"], format!("{}\n", n + 1));
            }
        });
        while !calls.is_finished() {
            let reply = sandbox.post("/sleep", &json!({}));
            assert!(matches!(reply.status, 200 | 409), "{}", reply.text());
            slept.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
        }
        calls.join().expect("every call is carried out");
    });
    sandbox.exec("true");
    server.wait_until_tidy();
}

/// Promises: L5.
#[test]
fn a_shell_over_websocket_wakes_a_sandbox_and_gets_the_notice() {
    let (_server, sandbox) = one();
    sandbox.command("s", "X=1; echo y >/workspace/y");
    put_to_sleep(&sandbox);
    let mut shell = sandbox.session("s");
    shell.start(Start::new("cat /workspace/y; echo [$X]").with("id", "c"));
    let mut outcome = isolet_kit::Outcome::default();
    shell.follow("c", &mut outcome, |_| false);
    assert_eq!(outcome.out, b"y\n[1]\n");
    assert_eq!(outcome.exit["lost"], json!([]), "{:?}", outcome.exit);
}

/// Promises: L7.
#[test]
fn a_sleeping_sandbox_outlives_its_server_and_ends_with_its_ttl() {
    let (mut server, sandbox) = one();
    sandbox.exec("echo x >/workspace/x");
    put_to_sleep(&sandbox);
    server.restart();
    assert_eq!(state(&sandbox), "sleeping");
    server.stop();
    server.launch();
    assert_eq!(state(&sandbox), "sleeping");
    assert_eq!(sandbox.exec("cat /workspace/x")["lost"], json!([]), "nothing ran");
    put_to_sleep(&sandbox);
    server.http().patch(&sandbox.path(""), &json!({"ttl_s": 1})).expect(200);
    wait_until("its ttl ends it", SOON, || {
        (server.http().get(&sandbox.path("")).status == 404).then_some(())
    });
    server.healthy();
}

/// A sandbox from the warm pool, which got only its limits and id later.
/// Promises: L1.
#[test]
fn the_idle_timeout_changes_while_a_sandbox_runs() {
    let server = isolet_kit::Options::new().warm_pool(1).start();
    let sandbox = server.sandbox();
    assert_eq!(sandbox.info()["sleep_after_s"], 600);
    sandbox.exec("echo kept >/workspace/a");
    let change = json!({"sleep_after_s": 1, "pids": 40});
    server.http().patch(&sandbox.path(""), &change).expect(200);
    asleep(&sandbox);
    assert_eq!(sandbox.says("cat /workspace/a; hostname"), "kept\nsandbox\n");
    asleep(&sandbox);
    let refused = server.http().patch(&sandbox.path(""), &json!({"sleep_after_s": -1}));
    assert_eq!(refused.status, 400);
    assert_eq!(sandbox.info()["pids"], 40);
}

/// Promises: L1.
#[test]
fn a_session_wakes_with_its_settings() {
    let (mut server, sandbox) = one();
    let spec = json!({"id": "dev", "cwd": "/usr", "env": {"A": "a"}, "metadata": {"m": 1}});
    let made = server.http().post(&sandbox.path("/sessions"), &spec).expect(201).json();
    sandbox.command("dev", "cd /tmp; A=other; B=b");
    put_to_sleep(&sandbox);
    server.restart();
    let first = sandbox.command("dev", "pwd; echo $A [$B]");
    assert_eq!(first["stdout"], "/tmp\nother [b]\n", "{first}");
    assert_eq!(first["lost"], json!([]));
    let found = server.http().get(&sandbox.path("/sessions/dev")).expect(200).json();
    for field in ["cwd", "env_names", "metadata", "created_at_ms"] {
        assert_eq!(found[field], made[field], "{field}");
    }
}

/// A forced sleep ends what runs, says so to the call that is in it, and keeps files and sessions.
#[test]
fn a_forced_sleep_ends_what_runs() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"sleep_after_s": 0}));
    assert_eq!(sandbox.info()["boots"], 1);
    sandbox.command("s", "echo kept >/workspace/a; cd /tmp; export A=b");
    put_to_sleep(&sandbox);
    let running = thread::scope(|scope| {
        let command = scope.spawn(|| {
            let body = json!({"command": "cd /; touch /workspace/on; sleep 4712"});
            sandbox.post("/sessions/s/exec", &body)
        });
        wait_until("the command runs", SOON, || {
            let found = server.http().get(&sandbox.path("/files/on"));
            (found.status == 200).then_some(())
        });
        sandbox.post("/sleep", &json!({})).expect(409);
        sandbox.post("/sleep?force=maybe", &json!({})).expect(400);
        let slept = sandbox.post("/sleep?force=1", &json!({})).expect(200).json();
        assert_eq!(slept["state"], "sleeping", "{slept}");
        command.join().expect("the call of the command")
    });
    assert_eq!(running.expect(409).error(), "sandbox_slept");
    assert!(server.processes("sleep 4712").is_empty());
    assert_eq!(state(&sandbox), "sleeping", "no client has woken it");
    let first = sandbox.command("s", "cat /workspace/a; pwd; echo $A");
    assert_eq!(first["stdout"], "kept\n/tmp\nb\n", "{first}");
    assert_eq!(sandbox.info()["boots"], 3);
    server.healthy();
}
