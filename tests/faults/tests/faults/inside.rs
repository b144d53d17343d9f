//! What a tenant does to its own sandbox: limits hold, neighbours do not notice, and deleting
//! works.

use isolet_kit::{Reply, Rows, SOON, Sandbox, Server, json, one, process, quickly, wait_until};
use std::path::Path;

/// Another sandbox goes on: its commands run, one after the other.
fn goes_on(sandbox: &Sandbox) {
    let mut shell = sandbox.shell();
    for _ in 0..50 {
        quickly("the neighbour's command", SOON, || shell.run("echo on").is("on\n", 0));
    }
}

#[test]
fn f18_the_process_limit_is_reported_and_the_sandbox_survives() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"pids": 16}));
    let mut shell = sandbox.shell();
    // Bash would retry for 15 s; Python reports the kernel's answer immediately.
    let fork = "import os\nfor _ in range(40):\n  if os.fork() == 0: os.execvp('sleep', ['sleep', '1000'])";
    let full = format!(
        "python3 -c \"{fork}\" 2>/tmp/err >/dev/null; mapfile -t e </tmp/err; echo ${{e[-1]}}"
    );
    let full = shell.run(&full);
    assert!(full.text().contains("BlockingIOError"), "{full:?}");
    let refused =
        sandbox.post("/exec", &json!({"argv": ["python3", "-c", "import os; os.fork()"]}));
    let clear = match refused.status {
        200 => refused.json()["exit_code"] != 0,
        status => status == 503 && refused.error() == "no_process",
    };
    assert!(clear, "{} {}", refused.status, refused.text());
    shell.run("echo builtins go on").is("builtins go on\n", 0);
    shell.run("kill -9 -1");
    wait_until("processes can be started again", SOON, || {
        (sandbox.post("/exec", &json!({"command": "echo a"})).json()["stdout"] == "a\n")
            .then_some(())
    });
    server.healthy();
}

/// Promises: B6.
#[test]
fn f19_memory_beyond_the_limit_ends_only_the_tenants_process() {
    let server = Server::start();
    let sandbox = server.sandbox_with(&json!({"memory_mib": 96}));
    let other = server.sandbox();
    let agents = server.agents();
    let mut rows = Rows::new();
    let eaters = [
        ("heap", "python3 -c 'x = [bytearray(1 << 20) for _ in range(500)]'"),
        (
            "tmpfs",
            "head -c 500M /dev/zero >/dev/shm/f || rm -f /dev/shm/f; rm -f /dev/shm/f; kill -9 $BASHPID",
        ),
        (
            "many at once",
            "for i in 1 2 3 4 5 6; do python3 -c 'x = bytearray(60 << 20); import time; time.sleep(3)' & done; wait -n; wait",
        ),
    ];
    for (name, text) in eaters {
        rows.row(name, || {
            let answer = std::thread::scope(|scope| {
                let eats = scope.spawn(|| sandbox.exec(text));
                goes_on(&other);
                eats.join().expect("it is answered")
            });
            if name != "many at once" {
                assert_ne!(answer["exit_code"], 0, "{answer}");
            }
            if name == "heap" {
                assert_eq!(answer["oom"], true, "{answer}");
            }
            assert_eq!(server.agents(), agents, "an agent died");
            assert_eq!(sandbox.says("echo lives"), "lives\n");
        });
    }
    rows.row("in a shell the command fails with an error", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run("python3 -c 'x = bytearray(500 << 20)'");
        assert_eq!((outcome.code, &outcome.exit["oom"]), (Some(137), &json!(true)), "{outcome:?}");
        shell.run("echo lives").is("lives\n", 0);
    });
    drop(rows);
    server.healthy();
}

/// Promises: B3.
#[test]
fn heavy_f21_a_fork_bomb_is_limited_and_deleted() {
    let server = Server::start();
    let mut rows = Rows::new();
    let bombs = [
        ("the classic", ":(){ :|:& };:"),
        (
            "slow and always full",
            "f() { while :; do sleep 0.05 & sleep 0.05; f & done; }; f & f & f &",
        ),
        (
            "deaf and detached",
            "g() { trap '' TERM INT HUP; while :; do setsid bash -c 'sleep 5' & done; }; g & g &",
        ),
    ];
    for (name, text) in bombs {
        rows.row(name, || {
            let sandbox = server.sandbox_with(&json!({"pids": 200, "cpu_millis": 1000}));
            let other = server.sandbox();
            let mut shell = sandbox.shell();
            shell.start(isolet_kit::Start::new(text));
            wait_until("it has spread", SOON, || {
                (sandbox.info()["usage"]["pids"].as_u64() > Some(100)).then_some(())
            });
            goes_on(&other);
            // One that waits longer than the server does is answered with 504.
            sandbox.delete();
            other.delete();
            server.healthy();
        });
    }
}

#[test]
fn processes_hidden_from_their_parent_end_with_the_sandbox() {
    let (server, sandbox) = one();
    let hiders = "nohup sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 & (setsid bash -c 'sleep 1000 & disown' &); \
                  sleep 1000 & kill -STOP $!; (trap '' TERM HUP INT; exec sleep 1000) & :";
    sandbox.command("s", hiders);
    sandbox.exec("setsid sleep 1000 >/dev/null 2>&1 & echo up");
    sandbox.delete();
    server.wait_until_tidy();
    assert!(server.processes("sleep").is_empty());
    server.healthy();
}

/// Hundreds of zombies with parent 1 once filled the process table of such sandboxes.
#[test]
fn orphans_are_reaped() {
    let (_server, sandbox) = one();
    sandbox.command("s", "for i in {1..200}; do (sleep 0.01 &) ; done");
    wait_until("no zombie is left", SOON, || {
        let said = sandbox.says("cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '; :");
        (said == "0\n").then_some(())
    });
}

/// Moves the processes of a cgroup to the top of its hierarchy and removes the cgroup, as an
/// administrator might do by mistake.
fn take_away(group: &Path) {
    for below in std::fs::read_dir(group).expect("a group").flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            take_away(&below.path());
        }
    }
    let tops = group.ancestors().filter(|up| up.join("cgroup.procs").is_file());
    let top = tops.last().expect("a top").join("cgroup.procs");
    wait_until("the group is empty and removed", SOON, || {
        let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        members.lines().for_each(|pid| drop(std::fs::write(&top, pid)));
        std::fs::remove_dir(group).ok()
    });
}

/// A command is refused: it finds that a cgroup is missing, unless that was noticed a moment before.
#[track_caller]
fn refused(reply: &Reply) {
    let is_known = reply.status == 409 && reply.error() == "sandbox_failed";
    assert!(reply.status == 503 || is_known, "{}: {}", reply.status, reply.text());
}

/// Promises: F30.
#[test]
fn f30_cgroups_removed_from_outside_are_reported_and_the_delete_works() {
    let server = Server::start();
    let other = server.sandbox();
    other.command("s", "x=kept");
    let standing = server.cgroups();
    let agents = server.agents();
    let count = standing.len();
    let mut rows = Rows::new();
    for at in 0..count {
        for touch in ["read", "exec", "shell", "delete"] {
            rows.row(&format!("{}, found by {touch}", standing[at].display()), || {
                let hurt = server.sandbox();
                let pid = hurt.command("s", "sleep 4830 & echo kept >/workspace/file");
                assert_eq!(pid["exit_code"], 0);
                let agent = server.agents().into_iter().find(|pid| !agents.contains(pid));
                let agent = agent.expect("its agent");
                let own = server.cgroups().into_iter().filter(|group| !standing.contains(group));
                let own: Vec<_> = own.collect();
                take_away(&own[at]);
                let named = own[at].display().to_string();
                match touch {
                    "read" => drop(hurt.info()),
                    "exec" => refused(&hurt.post("/exec", &json!({"command": "true"}))),
                    "shell" => {
                        refused(&hurt.post("/sessions/new/exec", &json!({"command": "true"})));
                    }
                    _ => {}
                }
                if touch != "delete" {
                    let reply = wait_until("it has failed", SOON, || {
                        let reply = hurt.info();
                        (reply["state"] == "failed").then_some(reply)
                    });
                    assert!(
                        reply["cause"].as_str().is_some_and(|cause| cause.contains(&named)),
                        "{reply}"
                    );
                    let refused = hurt.post("/exec", &json!({"command": "true"})).expect(409);
                    assert_eq!(refused.error(), "sandbox_failed");
                }
                hurt.delete();
                assert!(!process::alive(agent), "none of its processes survives");
                assert_eq!(server.cgroups(), standing);
            });
        }
    }
    drop(rows);
    assert_eq!(other.command("s", "echo $x")["stdout"], "kept\n");
    server.healthy();
}
