//! A failure at every step of pausing and resuming: no process is lost, and the next call works.

use crate::steps::failing;
use isolet_kit::{Rows, SOON, Sandbox, Server, Value, json, quickly, wait_until};

const STEPS: [&str; 3] = ["pause.recorded", "pause.frozen", "resume.recorded"];

/// A sandbox with a job and a variable that only memory holds.
fn marked(server: &Server) -> Sandbox {
    let sandbox = server.sandbox_with(&json!({"id": "one"}));
    let marks = sandbox.command("s", "A=in-memory; sleep 1000 & echo up");
    assert_eq!(marks["stdout"], "up\n");
    sandbox
}

fn state(sandbox: &Sandbox) -> String {
    sandbox.info()["state"].as_str().expect("a text").to_owned()
}

fn try_post(sandbox: &Sandbox, rest: &str) -> std::io::Result<u16> {
    Ok(sandbox.http.try_send("POST", &sandbox.path(rest), Some(b"{}"))?.status)
}

/// The pid of the background job, once its shell has started it.
fn job(server: &Server) -> i32 {
    wait_until("the job runs", SOON, || server.processes("sleep").first().copied())
}

/// Resumes the sandbox, and checks that its processes are the same as before.
fn continues(server: &Server, sandbox: &Sandbox, agent: i32, job: i32) {
    assert_eq!(sandbox.post("/resume", &json!({})).expect(200).json()["state"], "running");
    assert_eq!((server.agent(), server.processes("sleep")), (agent, vec![job]));
    let seen = sandbox.command("s", "echo $A; jobs -r | wc -l");
    assert_eq!(seen["stdout"], "in-memory\n1\n", "{seen}");
    assert!(seen.get("lost").is_none(), "{seen}");
}

/// Promises: L18.
#[test]
fn a_server_killed_at_any_step_of_a_pause_or_a_resume_loses_no_process() {
    let mut rows = Rows::new();
    for point in STEPS {
        rows.row(point, || {
            let mut server = failing(&format!("{point}=abort"));
            let sandbox = marked(&server);
            let agent = server.agent();
            let job = job(&server);
            let killed = try_post(&sandbox, "/pause").is_err();
            if !killed {
                assert!(try_post(&sandbox, "/resume").is_err());
            }
            assert!(!server.wait().success());
            server.launch();
            let wanted = if point == "resume.recorded" { "running" } else { "paused" };
            wait_until("the state that was recorded", SOON, || {
                let now = state(&sandbox);
                assert!(now == "running" || now == "paused", "{now}");
                (now == wanted).then_some(())
            });
            continues(&server, &sandbox, agent, job);
            server.healthy();
        });
    }
}

/// Promises: L18.
#[test]
fn a_pause_that_fails_is_rolled_back() {
    let server = failing("pause.recorded=error");
    let sandbox = marked(&server);
    let agent = server.agent();
    let job = job(&server);
    let refused = sandbox.post("/pause", &json!({}));
    assert!(refused.status >= 500, "{}", refused.text());
    assert_eq!(state(&sandbox), "running");
    continues(&server, &sandbox, agent, job);
    server.healthy();
}

/// Promises: L18.
#[test]
fn a_panic_at_any_step_of_a_pause_or_a_resume_loses_no_process() {
    let mut rows = Rows::new();
    for point in STEPS {
        rows.row(point, || {
            let mut server = failing(&format!("{point}=panic"));
            let sandbox = marked(&server);
            let agent = server.agent();
            let job = job(&server);
            for rest in ["/pause", "/resume"] {
                let status = quickly("an answer", SOON, || try_post(&sandbox, rest));
                let status = status.expect("it is answered");
                assert!(status == 200 || status >= 500, "{rest}: {status}");
            }
            // The failpoint acts every time that this server reaches it.
            server.restart();
            continues(&server, &sandbox, agent, job);
            server.healthy();
        });
    }
}

/// A resume that failed had started the lifetime of the sandbox in the memory of its driver, which
/// destroyed the paused sandbox when it was over. So did a sleep that failed, because it continues the
/// sandbox to save its shells.
/// Promises: L18.
#[test]
fn a_sandbox_whose_client_stopped_its_lifetime_outlives_a_resume_a_sleep_and_a_wake_that_fail() {
    let exec = json!({"command": "true"});
    let mut rows = Rows::new();
    for (point, memory, rest, body) in [
        ("resume.recorded", true, "/resume", &json!({})),
        ("sleep.closed", true, "/sleep", &json!({})),
        ("wake.before_record", false, "/exec", &exec),
    ] {
        rows.row(point, || {
            let server = failing(&format!("{point}=error"));
            // As E2B's clients create them: without a sleep of their own.
            let spec = json!({"id": "one", "ttl_s": 600, "sleep_after_s": 0});
            let sandbox = server.sandbox_with(&spec);
            sandbox.exec("echo kept >/workspace/file");
            let e2b = |what: &str, body: Value| {
                server.http().post(&format!("/sandboxes/one/{what}"), &body).expect(204);
            };
            e2b("pause", json!({"memory": memory}));
            e2b("timeout", json!({"timeout": 1}));
            let before = sandbox.info();
            assert_eq!(before["expires_at_ms"], Value::Null, "{before}");
            let refused = sandbox.post(rest, body);
            assert!(refused.status >= 500, "{}", refused.text());
            // It began later, and its lifetime is as long.
            let witness = server.sandbox_with(&json!({"ttl_s": 1}));
            wait_until("the time of another one is over", SOON, || {
                (server.http().get(&witness.path("")).status == 404).then_some(())
            });
            let now = sandbox.info();
            for field in ["state", "expires_at_ms"] {
                assert_eq!(now[field], before[field], "{now}");
            }
        });
    }
}
