//! A failure at every step of falling asleep and waking up, and a reboot of the host: files stay,
//! and the next call works.

use crate::steps::failing;
use isolet_kit::{Rows, SOON, Sandbox, Server, json, process, quickly, wait_until};
use rustix::process::Signal;
use std::time::Duration;

const SLEEP: [&str; 3] = ["sleep.closed", "sleep.recorded", "sleep.rested"];
/// More than a forced sleep may take: 30 s for the agents, and what follows.
const FORCED: Duration = Duration::from_secs(45);
const WAKE: [&str; 4] = ["wake.begun", "wake.launched", "wake.before_record", "wake.recorded"];

fn marked(server: &Server, persistent: bool) -> Sandbox {
    let sandbox = server.sandbox_with(&json!({"id": "one", "persistent": persistent}));
    sandbox.command("s", "echo kept >/workspace/a; echo too >/usr/local/b; sleep 1000 & disown");
    sandbox
}

fn try_post(sandbox: &Sandbox, rest: &str, body: &str) -> std::io::Result<u16> {
    let reply = sandbox.http.try_send("POST", &sandbox.path(rest), Some(body.as_bytes()))?;
    Ok(reply.status)
}

/// Requests sleep as soon as the earlier clients have disconnected.
fn put_to_sleep(sandbox: &Sandbox) {
    wait_until("it sleeps", SOON, || {
        (try_post(sandbox, "/sleep", "{}").ok()? == 200).then_some(())
    });
}

fn works(sandbox: &Sandbox, persistent: bool) {
    let seen = sandbox.exec("cat /workspace/a /usr/local/b 2>&1");
    if persistent {
        assert_eq!(seen["stdout"], "kept\ntoo\n", "{seen}");
    }
    sandbox.exec("echo kept >/workspace/a; echo too >/usr/local/b");
    put_to_sleep(sandbox);
    assert_eq!(sandbox.says("echo again"), "again\n");
}

/// Promises: L8.
#[test]
fn a_server_killed_at_any_step_of_a_sleep_keeps_files_and_wakes() {
    let mut rows = Rows::new();
    for (point, persistent) in SLEEP.iter().flat_map(|point| [(point, true), (point, false)]) {
        rows.row(&format!("{point} persistent={persistent}"), || {
            let mut server = failing(&format!("{point}=abort"));
            let sandbox = marked(&server, persistent);
            assert!(try_post(&sandbox, "/sleep", "{}").is_err());
            assert!(!server.wait().success());
            server.launch();
            let state = sandbox.info()["state"].clone();
            assert!(state == "running" || state == "sleeping", "{state}");
            if state == "sleeping" {
                wait_until("none of its processes runs", SOON, || {
                    server.agents().is_empty().then_some(())
                });
            }
            works(&sandbox, persistent);
            server.healthy();
        });
    }
}

/// Promises: L8.
#[test]
fn a_server_killed_at_any_step_of_a_wake_up_keeps_files_and_wakes() {
    let mut rows = Rows::new();
    for (point, persistent) in WAKE.iter().flat_map(|point| [(point, true), (point, false)]) {
        rows.row(&format!("{point} persistent={persistent}"), || {
            let mut server = failing(&format!("{point}=abort"));
            let sandbox = marked(&server, persistent);
            put_to_sleep(&sandbox);
            assert!(try_post(&sandbox, "/exec", "{\"command\":\"true\"}").is_err());
            assert!(!server.wait().success());
            server.launch();
            let first = sandbox.exec("true");
            assert!(first["lost"].is_array(), "reported although the server was killed: {first}");
            works(&sandbox, persistent);
            server.healthy();
        });
    }
}

/// Promises: L8.
#[test]
fn an_error_or_a_panic_at_any_step_of_sleep_or_wake_up_affects_one_request() {
    let mut rows = Rows::new();
    let errors = SLEEP.iter().chain(&WAKE).map(|point| (*point, "error"));
    let panics = ["sleep.closed", "sleep.recorded", "wake.launched"].map(|point| (point, "panic"));
    for (point, action) in errors.chain(panics) {
        rows.row(&format!("{point}={action}"), || {
            let mut server = failing(&format!("{point}={action}"));
            let sandbox = marked(&server, true);
            let exec = "{\"command\":\"true\"}";
            for rest in ["/sleep", "/exec"] {
                let body = if rest == "/sleep" { "{}" } else { exec };
                let status = quickly("an answer", SOON, || try_post(&sandbox, rest, body));
                let status = status.expect("it is answered");
                assert!(matches!(status, 200 | 409) || status >= 500, "{rest}: {status}");
            }
            // The failpoint acts every time that this server reaches it.
            server.restart();
            assert_eq!(sandbox.says("cat /workspace/a"), "kept\n");
            server.wait_until_tidy();
        });
    }
}

/// Promises: L8.
#[test]
fn a_sandbox_is_deleted_while_it_falls_asleep_or_wakes() {
    let mut rows = Rows::new();
    for point in ["sleep.closed", "sleep.recorded", "sleep.rested", "wake.launched"] {
        rows.row(point, || {
            let server = failing(&format!("{point}=delay(1000)"));
            let sandbox = marked(&server, true);
            if point.starts_with("wake") {
                put_to_sleep(&sandbox);
            }
            std::thread::scope(|scope| {
                let other = sandbox.clone();
                let call = scope.spawn(move || {
                    if point.starts_with("wake") {
                        return try_post(&other, "/exec", "{\"command\":\"sleep 100\"}");
                    }
                    try_post(&other, "/sleep", "{}")
                });
                wait_until("falling asleep has started", SOON, || {
                    server.log().contains("failpoint: delayed").then_some(())
                });
                quickly("a delete", SOON, || sandbox.delete());
                let status = call.join().expect("no panic").expect("an answer");
                assert!(matches!(status, 200 | 404 | 409), "{status}");
            });
            server.wait_until_tidy();
            server.http().post("/v1/sandboxes", &json!({"id": "one"})).expect(201);
            server.healthy();
        });
    }
}

/// Promises: F29.
#[test]
fn f29_persistent_files_survive_a_reboot_of_the_host() {
    let mut server = Server::start();
    let persistent = marked(&server, true);
    let gone = server.sandbox_with(&json!({"persistent": false}));
    gone.exec("echo x >/workspace/x");
    let asleep = server.sandbox();
    asleep.exec("echo y >/workspace/y");
    put_to_sleep(&asleep);
    server.reboot();
    for sandbox in [&persistent, &gone, &asleep] {
        assert_eq!(sandbox.info()["state"], "sleeping", "{}", sandbox.info());
        assert!(sandbox.info().get("cause").is_none());
    }
    let first = persistent.command("s", "cat /workspace/a /usr/local/b; pgrep -c sleep");
    assert_eq!(first["stdout"], "kept\ntoo\n0\n", "{first}");
    // Its shell may have been saved before.
    let lost = first["lost"].as_array().expect("a list");
    assert_eq!(lost[..2], [json!("shells"), json!("processes")], "{first}");
    let first = gone.exec("ls -A /workspace");
    assert_eq!(first["stdout"], "", "{first}");
    assert_eq!(first["lost"], json!(["shells", "processes", "files"]), "{first}");
    assert_eq!(asleep.says("cat /workspace/y"), "y\n");
    server.healthy();
}

/// What the last save of a shell did not contain is lost with the host, and reported.
/// Promises: L12.
#[test]
fn f29_saved_shell_state_survives_a_reboot_of_the_host() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    sandbox.command("s", "cd /usr; x=saved");
    let file = std::fs::read_dir(server.data().join("sandboxes")).expect("there").next();
    let file = file.expect("a sandbox").expect("an entry").path().join("shells/s");
    wait_until("it is saved", SOON, || std::fs::metadata(&file).ok());
    sandbox.command("s", "x=newer");
    sandbox.command("new", "x=1");
    server.reboot();
    let first = sandbox.command("s", "pwd; echo $x");
    assert_eq!(first["stdout"], "/usr\nsaved\n", "{first}");
    assert_eq!(first["lost"], json!(["shells", "processes", "shell_state"]), "{first}");
    let state = &first["lost_state"][0];
    assert_eq!((&state["session"], &state["why"]), (&json!("s"), &json!("crash")));
    assert!(state["saved_at_ms"].as_i64().is_some_and(|at| at > 1_600_000_000_000), "{first}");
    assert_eq!(sandbox.command("new", "echo [$x]")["stdout"], "[]\n");
}

/// A tenant cannot stop the agent, and an agent that is broken must not keep a sandbox awake.
/// Promises: L8.
#[test]
fn a_forced_sleep_ends_also_when_the_agent_does_not_answer() {
    let server = Server::start();
    let sandbox = marked(&server, true);
    process::signal(server.agent(), Signal::STOP);
    quickly("a forced sleep", FORCED, || {
        let slept = sandbox.post("/sleep?force=1", &json!({})).expect(200).json();
        assert_eq!(slept["state"], "sleeping", "{slept}");
    });
    let first = sandbox.command("s", "cat /workspace/a /usr/local/b");
    assert_eq!(first["stdout"], "kept\ntoo\n", "{first}");
    assert!(first["lost"].to_string().contains("processes"), "{first}");
    works(&sandbox, true);
}
