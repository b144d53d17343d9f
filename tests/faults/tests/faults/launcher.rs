//! The launcher dies: running sandboxes are unaffected, and the next create gets a new launcher.

use isolet_kit::{Options, SOON, json, one, process, quickly, tries, wait_until};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Promises: F43.
#[test]
fn f43_a_killed_launcher_is_replaced_and_affects_nobody() {
    let (server, sandbox) = one();
    sandbox.command("s", "x=kept");
    for _ in 0..3 {
        process::kill(server.launcher());
        assert_eq!(sandbox.command("s", "echo $x")["stdout"], "kept\n");
        let made = quickly("a create", SOON, || server.http().post("/v1/sandboxes", &json!({})));
        let id = match made.status {
            201 => made.json()["id"].as_str().expect("an id").to_owned(),
            // The create that found the launcher dead may fail; the next one must not.
            _ => server.sandbox().id,
        };
        assert_eq!(server.named(&id).says("echo new"), "new\n");
    }
    server.healthy();
}

/// Promises: F43.
#[test]
fn f43_a_launcher_killed_during_a_create_leaves_nothing_half_made() {
    let (server, sandbox) = one();
    for _ in 0..5 {
        let launcher = server.launcher();
        process::signal(launcher, Signal::STOP);
        std::thread::scope(|scope| {
            let create =
                scope.spawn(|| server.http().post("/v1/sandboxes", &json!({"id": "half"})));
            let seen = wait_until("the create has started", SOON, || {
                let seen = server.http().get("/v1/sandboxes/half");
                (seen.status == 200).then(|| seen.json())
            });
            // A read that waits for the launcher finds no sandbox that is being created.
            assert_eq!(seen["state"], "creating", "{seen}");
            process::kill(launcher);
            let reply = create.join().expect("it is answered");
            assert!(reply.status == 201 || reply.status >= 500, "{}", reply.text());
            if reply.status == 201 {
                server.named("half").delete();
            }
        });
        server.healthy();
    }
    assert_eq!(sandbox.says("echo unhurt"), "unhurt\n");
}

/// Promises: V7.
#[test]
fn f43_a_launcher_that_dies_over_a_scope_costs_time_and_nothing_else() {
    let (server, sandbox) = one();
    let stop = AtomicBool::new(false);
    // The number of requests in a row that a killed launcher has failed.
    let failures = AtomicU32::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // Longer than a launcher takes to start, and never at the same point of its work. On a
            // busy machine it takes longer, and is given more time.
            let pauses = [151, 173, 211, 157, 199].into_iter().cycle();
            for pause in pauses.map(Duration::from_millis) {
                std::thread::sleep(pause * (1 + failures.load(Ordering::Relaxed).min(40)));
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                process::kill(server.launcher());
            }
        });
        for n in 0..tries(20, 60) {
            let id = format!("s{n}");
            let spec = json!({"id": id, "file_access": {"write": [id]}});
            let reply = sandbox.post("/sessions", &spec);
            assert!(matches!(reply.status, 201 | 500 | 503), "{}", reply.text());
            if reply.status == 201 {
                failures.store(0, Ordering::Relaxed);
                let reply =
                    sandbox.post(&format!("/sessions/{id}/exec"), &json!({"command": "ls"}));
                assert!(matches!(reply.status, 200 | 500 | 503), "{}", reply.text());
            } else {
                failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let all = sandbox.http.get(&sandbox.path("/sessions")).expect(200).json();
    let made: Vec<&str> =
        all.as_array().expect("a list").iter().filter_map(|s| s["id"].as_str()).collect();
    assert!(made.len() > 3, "{made:?}");
    for id in made.iter().filter(|id| **id != "default") {
        assert_eq!(sandbox.command(id, "ls; ls .sessions")["stdout"], format!("{id}\n{id}\n"));
    }
    sandbox.delete();
    server.healthy();
    server.wait_until_tidy();
}

/// A server that is killed between starting a scope and recording it leaves an agent that belongs
/// to no session.
/// Promises: V7.
#[test]
fn f1_a_scope_without_a_session_ends() {
    let (mut server, sandbox) = one();
    let spec = json!({"id": "one", "file_access": {"write": ["src"]}});
    sandbox.post("/sessions", &spec).expect(201);
    sandbox.command("one", "sleep 4715 &");
    assert_eq!(server.agents().len(), 2);
    server.kill();
    let records = server.data().join("isolet.db");
    let forget = "DELETE FROM sessions WHERE id = 'one'";
    let done = std::process::Command::new("python3")
        .args(["-c", "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute(sys.argv[2]); d.commit()"])
        .arg(&records)
        .arg(forget)
        .status();
    assert!(done.expect("python3").success());
    server.launch();
    wait_until("its agent is gone", SOON, || (server.agents().len() == 1).then_some(()));
    assert_eq!(sandbox.says("pgrep -c sleep; ls -d src"), "0\nsrc\n");
    sandbox.post("/sessions", &spec).expect(201);
    assert_eq!(sandbox.command("one", "ls")["stdout"], "src\n");
    server.healthy();
}

/// Two servers ran in sequence on one directory: the launcher of the first ended late and removed
/// the cgroups of both while they were empty.
#[test]
fn f30_cgroups_that_an_earlier_launcher_removes_are_created_again() {
    let server = Options::new().warm_pool(0).start();
    let groups = server.parent_cgroups();
    assert!(!groups.is_empty());
    for group in &groups {
        std::fs::remove_dir(group).expect("it is empty");
    }
    let sandbox = server.sandbox();
    assert_eq!(sandbox.says("echo up"), "up\n");
    server.healthy();
}

/// The leftovers of one launcher were not yet removed when the next one got a request, which failed
/// with "step directory: File exists".
/// Promises: F31.
#[test]
fn f31_a_create_after_a_slow_launcher_works_or_says_when() {
    let server = Options::new().warm_pool(0).start();
    let pid = server.launcher();
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string(), "-e", "trace=umount2"]);
    strace.args(["-e", "inject=umount2:delay_enter=12000000"]);
    let mut strace = strace.stderr(std::process::Stdio::null()).spawn().expect("strace runs");
    wait_until("it is traced", SOON, || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
            .then_some(())
    });
    let truthful = |reply: &isolet_kit::Reply| {
        let late = reply.status == 504 && reply.error() == "deadline_exceeded";
        assert!(reply.status == 201 || late, "{} {}", reply.status, reply.text());
        assert!(!reply.text().contains("File exists"), "{}", reply.text());
    };
    std::thread::scope(|threads| {
        let create = threads.spawn(|| server.http().post("/v1/sandboxes", &json!({"id": "slow"})));
        wait_until("the sandbox is being created", SOON, || {
            (server.http().get("/v1/sandboxes/slow").status == 200).then_some(())
        });
        let deleted = server.http().delete("/v1/sandboxes/slow");
        assert!(matches!(deleted.status, 200 | 504), "{}", deleted.text());
        truthful(&create.join().expect("it is answered"));
    });
    let _ = strace.kill();
    let _ = strace.wait();
    wait_until("a create of the same id", isolet_kit::LONG, || {
        let reply = server.http().post("/v1/sandboxes", &json!({"id": "slow"}));
        truthful(&reply);
        (reply.status == 201).then_some(())
    });
    assert_eq!(server.named("slow").says("echo up"), "up\n");
    server.healthy();
}
