//! An agent that dies, stalls or lies affects only its own sandbox.

use isolet_kit::{Rows, SOON, Start, json, one, process, quickly, wait_until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

/// Promises: H14, F8.
#[test]
fn f8_a_killed_agent_ends_its_sandbox_and_the_cause_is_reported() {
    let (server, sandbox) = one();
    let mut shell = sandbox.shell();
    shell.run("echo kept >/workspace/f; setsid sleep 1000 & :").is("", 0);
    let other = server.sandbox();
    let agents = server.agents();
    process::kill(agents[0]);
    let failed = wait_until("one has failed", SOON, || {
        [&sandbox, &other].into_iter().find(|one| one.info()["state"] == "failed").cloned()
    });
    assert!(failed.info()["cause"].is_string(), "{}", failed.info());
    let refused = failed.post("/exec", &json!({"command": ":"})).expect(409);
    assert_eq!(refused.error(), "sandbox_failed");
    let alive = if failed.id == sandbox.id { &other } else { &sandbox };
    assert_eq!(alive.says("echo unhurt"), "unhurt\n");
    wait_until("none of its processes runs", SOON, || (server.agents().len() == 1).then_some(()));
    assert_eq!(server.traces().directories.len(), 2, "its disk is kept until it is deleted");
    failed.delete();
    server.healthy();
}

/// Shorter than the server waits for an answer of an agent (10 s), so that it tells whether a call did.
const NOT_FOR_THE_AGENT: Duration = Duration::from_secs(8);

/// Waits until the sandbox has failed because its agent was killed.
fn killed(server: &isolet_kit::Server, sandbox: &isolet_kit::Sandbox) {
    process::kill(server.agent());
    wait_until("it has failed", SOON, || (sandbox.info()["state"] == "failed").then_some(()));
    wait_until("none of its processes runs", SOON, || server.agents().is_empty().then_some(()));
}

/// Failed sandboxes were documented to keep their files, but every call that read them was answered
/// with 409.
/// Promises: F7.
#[test]
fn f7_a_failed_sandbox_allows_reading_files_and_nothing_else() {
    let mut server = isolet_kit::Server::start();
    let mut rows = Rows::new();
    for (name, spec) in [
        ("persistent", json!({})),
        ("ephemeral", json!({"persistent": false})),
        ("with a disk of its own", json!({"disk_mib": 64})),
    ] {
        rows.row(name, || {
            let sandbox = server.sandbox_with(&spec);
            sandbox.says("mkdir d; echo acked >d/f; echo own >/root/g; sync");
            killed(&server, &sandbox);
            for restart in [false, true] {
                if restart {
                    server.restart();
                    wait_until("the agent that served reads ends", SOON, || {
                        server.agents().is_empty().then_some(())
                    });
                }
                let sandbox = server.named(&sandbox.id);
                let get = |rest: &str| sandbox.http.get(&sandbox.path(rest)).expect(200);
                assert_eq!(get("/files/d/f").text(), "acked\n");
                assert_eq!(get("/files//root/g").text(), "own\n");
                assert_eq!(get("/files").json()[0]["name"], "d");
                assert_eq!(get("/files?search=acked").status, 200);
                assert!(get("/files?tar=1").body.len() >= 1024);
                for op in ["stat", "exists"] {
                    sandbox.post("/files", &json!({"op": op, "path": "d/f"})).expect(200);
                }
                let refused = |reply: isolet_kit::Reply| {
                    assert_eq!((reply.status, reply.error()), (409, "sandbox_failed".to_owned()));
                };
                refused(sandbox.post("/exec", &json!({"command": ":"})));
                refused(sandbox.post("/files", &json!({"op": "mkdir", "path": "e"})));
                refused(sandbox.http.send("PUT", &sandbox.path("/files/e"), Some(b"x")));
                refused(sandbox.http.delete(&sandbox.path("/files/d/f")));
                let info = sandbox.info();
                assert_eq!(info["state"], "failed", "{info}");
                assert!(info["cause"].is_string(), "{info}");
            }
            server.named(&sandbox.id).delete();
        });
    }
    drop(rows);
    server.healthy();
}

/// Promises: F7.
#[test]
fn f7_the_agent_that_serves_a_failed_sandbox_ends_after_the_last_reader() {
    let (server, sandbox) = one();
    sandbox.says("echo acked >f");
    killed(&server, &sandbox);
    assert_eq!(sandbox.http.get(&sandbox.path("/files/f")).expect(200).text(), "acked\n");
    let agents = server.agents();
    assert_eq!(agents.len(), 1);
    // The next call replaces a killed agent.
    process::kill(agents[0]);
    assert_eq!(sandbox.http.get(&sandbox.path("/files/f")).expect(200).text(), "acked\n");
    wait_until("the agent ends", SOON, || server.agents().is_empty().then_some(()));
    assert_eq!(sandbox.info()["state"], "failed");
    sandbox.delete();
    server.healthy();
}

/// Promises: F7.
#[test]
fn f7_a_failed_sandbox_is_recovered_with_its_files_and_shell_state() {
    let (mut server, sandbox) = one();
    let saved = server.data().join("sandboxes");
    sandbox.command("s", "x=kept; cd /tmp; echo acked >/workspace/f");
    sandbox.exec("for i in $(seq 300000); do :; done");
    let used = || sandbox.info()["usage"]["cpu_ms"].as_f64().expect("a number");
    let before = used();
    assert!(before > 100.0, "{before}");
    wait_until("its shell is saved", SOON, || {
        let mut all = std::fs::read_dir(&saved).expect("reads").flatten();
        all.any(|one| one.path().join("shells/s").is_file()).then_some(())
    });
    killed(&server, &sandbox);
    // The recorded usage survives its cgroups, which are removed when the files are read.
    sandbox.http.get(&sandbox.path("/files/f")).expect(200);
    let recovered = sandbox.post("/recover", &json!({})).expect(200).json();
    assert_eq!(recovered["state"], "sleeping", "{recovered}");
    assert!(recovered["cause"].is_null(), "{recovered}");
    server.restart();
    let sandbox = server.named(&sandbox.id);
    assert_eq!(sandbox.post("/recover", &json!({})).expect(200).json()["state"], "sleeping");
    let reported = sandbox.command("s", "echo $x; pwd; cat /workspace/f");
    assert_eq!(reported["stdout"], "kept\n/tmp\nacked\n", "{reported}");
    assert!(
        reported["lost"].as_array().is_some_and(|lost| lost.contains(&json!("processes"))),
        "{reported}"
    );
    assert_eq!(sandbox.post("/recover", &json!({})).expect(200).json()["state"], "running");
    let used = sandbox.info()["usage"]["cpu_ms"].as_f64().expect("a number");
    assert!(used >= before, "{used} after {before}");
    let other = server.sandbox_with(&json!({"persistent": false}));
    sandbox.delete();
    killed(&server, &other);
    let refused = other.post("/recover", &json!({})).expect(409);
    assert_eq!(refused.error(), "sandbox_failed");
    other.delete();
    server.healthy();
}

/// Promises: F9.
#[test]
fn f9_a_shell_that_ends_reports_the_cause_once() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("killed from outside", || {
        let mut shell = sandbox.session("killed");
        let pid = shell.run("echo $$").text().trim().to_owned();
        let id = shell.start(Start::new("echo last; sleep 1000"));
        let mut outcome = isolet_kit::Outcome::default();
        shell.follow(&id, &mut outcome, |so_far| so_far.out == b"last\n");
        sandbox.says(&format!("kill -9 {pid}"));
        shell.follow(&id, &mut outcome, |_| false);
        assert_eq!(outcome.code, Some(137), "{outcome:?}");
        assert_eq!(shell.ended()["signal"].as_i64(), Some(9));
        let next = shell.run("echo next");
        next.is("next\n", 0);
        assert_eq!(next.exit["fresh"], true);
        assert!(
            !shell.others.iter().any(|frame| format!("{frame:?}").contains("shell_closed")),
            "the end is reported twice"
        );
    });
    rows.row("exit 7", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run("seq 5000; exit 7");
        assert_eq!(
            (outcome.out.len(), outcome.code),
            (23_893, Some(7)),
            "the exit comes after the last byte"
        );
        assert_eq!(shell.ended()["code"].as_i64(), Some(7));
    });
    rows.row("exec sleep", || {
        let mut shell = sandbox.shell();
        shell.run("exec sleep 0.2").is("", 0);
        assert_eq!(shell.ended()["code"].as_i64(), Some(0));
    });
    rows.row("a stopped bash can be closed", || {
        let mut shell = sandbox.session("stopped");
        let pid = shell.run("echo $$").text().trim().to_owned();
        sandbox.says(&format!("kill -STOP {pid}"));
        quickly("a delete of its session", SOON, || {
            let reply = sandbox.http.delete(&sandbox.path("/sessions/stopped"));
            assert!(matches!(reply.status, 200 | 204), "{}", reply.text());
        });
    });
    drop(rows);
    server.healthy();
}

/// Promises: F11.
#[test]
fn f11_a_stopped_or_frozen_process_delays_nobody() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    let timed = |text: &str, ms: u64| Start::new(text).with("timeout_ms", ms);
    rows.row("a bash that stops itself", || {
        let mut shell = sandbox.session("itself");
        let outcome =
            quickly("its deadline", SOON, || shell.run_with(timed("kill -STOP $$; echo on", 300)));
        // The stopped command is resumed to receive its interrupt, and may finish before it does.
        assert_eq!(outcome.exit["timed_out"], true, "{outcome:?}");
        assert_eq!(sandbox.command("itself", "echo next")["stdout"], "next\n");
    });
    rows.row("a bash that is stopped while it is idle", || {
        let pid = sandbox.command("idle", "x=1; echo $$")["stdout"].clone();
        sandbox.says(&format!("kill -STOP {}", pid.as_str().expect("text")));
        // Longer than the interval after which the shell state is saved.
        std::thread::park_timeout(Duration::from_millis(1300));
        let path = sandbox.path("/sessions/idle/exec");
        let body = json!({"command": "echo $x", "timeout_ms": 300});
        let answer =
            quickly("its deadline", SOON, || sandbox.http.post(&path, &body).expect(200).json());
        assert_eq!(answer["timed_out"], true, "{answer}");
        assert_eq!(sandbox.command("idle", "echo next")["stdout"], "next\n");
    });
    rows.row("a bash that was stopped for a while", || {
        let pid = sandbox.command("while", "x=1; echo $$")["stdout"].clone();
        let pid = pid.as_str().expect("text");
        sandbox.says(&format!("kill -STOP {pid}"));
        std::thread::park_timeout(Duration::from_millis(3500));
        sandbox.says(&format!("kill -CONT {pid}"));
        let long = format!("echo $x # {}", "y".repeat(5000));
        assert_eq!(sandbox.command("while", &long)["stdout"], "1\n");
    });
    drop(rows);
    let other = server.sandbox();
    let mut shell = sandbox.session("frozen");
    shell.start(timed("sleep 1000", 500));
    let groups = server.cgroups();
    let freezers = groups.iter().map(|group| group.join("cgroup.freeze"));
    for freezer in freezers.filter(|freezer| freezer.is_file()) {
        std::fs::write(freezer, "1").expect("freezes");
    }
    quickly("another sandbox is created", SOON, || server.sandbox().delete());
    // One that waits longer than the server does is answered with 504.
    sandbox.delete();
    other.delete();
    server.healthy();
}

/// Promises: F27.
#[test]
fn f27_a_stalled_agent_delays_only_its_own_sandbox() {
    let (server, sandbox) = one();
    let other = server.sandbox();
    let mut shell = sandbox.shell();
    shell.run("x=kept").is("", 0);
    let stalled = server.agents().into_iter().find(|agent| {
        // The older agent belongs to the sandbox with our shell.
        server.agents().iter().all(|other| process::started(*agent) <= process::started(*other))
    });
    let stalled = stalled.expect("an agent");
    process::signal(stalled, Signal::STOP);
    // Until the server accepts no more: what it buffers for a stalled agent is bounded.
    let _ = shell.stream().set_write_timeout(Some(Duration::from_millis(300)));
    let much = json!({"type": "shell_run", "id": "x", "command": "y".repeat(100_000)});
    let stopped = (0..500).any(|_| shell.try_send(&much).is_err());
    assert!(stopped, "the server accepted 50 MB for an agent that reads nothing");
    let before = process::memory_kib(server.pid());
    for _ in 0..10 {
        quickly("the other sandbox", NOT_FOR_THE_AGENT, || {
            assert_eq!(other.says("echo on"), "on\n")
        });
    }
    assert!(process::memory_kib(server.pid()) < before + 32 * 1024);
    sandbox.delete();
    server.healthy();
}

/// What a lying agent may send; to the server these are untrusted bytes.
fn lies() -> Vec<(&'static str, Vec<u8>)> {
    let tiny: Vec<u8> = (0..1_000_000_u32).flat_map(|_| [0, 0, 0, 2, 0, 1]).collect();
    let mut data = vec![0, 0, 0, 14, 1, 1];
    data.extend([0; 8]);
    data.extend([0, 1, b'z', b'!']);
    vec![
        ("garbage", b"HTTP/1.1 200 OK\r\n\r\nhello".repeat(1000)),
        ("length 0", vec![0, 0, 0, 0, 0]),
        ("length 2^32-1", vec![255; 64]),
        ("length 2^31", vec![0x80, 0, 0, 0, 0]),
        ("one above the most", vec![0, 2, 0, 1, 0]),
        ("an unknown kind", vec![0, 0, 0, 1, 9]),
        ("an unknown message", vec![0, 0, 0, 2, 0, 250]),
        ("a million tiny frames", tiny),
        ("data of an unknown id", data),
        ("nothing, then the end", Vec::new()),
    ]
}

/// Promises: F27.
#[test]
fn f27_an_agent_that_lies_loses_only_its_own_sandbox() {
    let mut rows = Rows::new();
    for (name, bytes) in lies() {
        rows.row(name, || {
            let (mut server, sandbox) = one();
            let other = server.sandbox_with(&json!({"id": "other"}));
            other.command("s", "x=kept");
            server.kill();
            // The liar takes the place of the first sandbox's agent.
            let mut folders: Vec<_> = std::fs::read_dir(server.data().join("sandboxes"))
                .expect("it is there")
                .flatten()
                .map(|entry| (entry.metadata().and_then(|m| m.created()).ok(), entry.path()))
                .collect();
            folders.sort();
            let socket = folders[0].1.join("agent.sock");
            std::fs::remove_file(&socket).expect("the agent listened");
            let listener = UnixListener::bind(&socket).expect("the liar listens");
            let said = bytes.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let Ok(mut stream) = stream else { return };
                    let said = said.clone();
                    std::thread::spawn(move || {
                        let _ = stream.read(&mut [0; 64]);
                        let _ = stream.write_all(&said);
                    });
                }
            });
            quickly("recovery beside a liar", SOON, || server.launch());
            let before = process::memory_kib(server.pid());
            quickly("the other", SOON, || {
                assert_eq!(other.command("s", "echo $x")["stdout"], "kept\n")
            });
            wait_until("the liar's sandbox fails", SOON, || {
                (sandbox.info()["state"] != "running").then_some(())
            });
            assert!(process::memory_kib(server.pid()) < before + 32 * 1024);
            sandbox.delete();
            server.healthy();
        });
    }
}
