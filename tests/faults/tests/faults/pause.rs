//! A failure at every step of pausing and resuming: no process is lost, and the next call works.

use crate::steps::failing;
use isolet_kit::{Rows, SOON, Sandbox, Server, json, quickly, wait_until};

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
