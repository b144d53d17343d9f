//! `isolet recover` on sandboxes whose agent was killed, `isolet pause` and `isolet resume`, and the
//! last use of keys.

use crate::programs::run;
use isolet_kit::{SOON, Server, Value, one, process, wait_until};

/// Promises: F7.
#[test]
fn a_failed_sandbox_is_recovered_by_the_command_line_which_says_what_is_lost() {
    let (server, sandbox) = one();
    let saved = server.data().join("sandboxes");
    sandbox.command("s", "x=kept; cd /tmp; echo acked >/workspace/f");
    wait_until("its shell is saved", SOON, || {
        let mut all = std::fs::read_dir(&saved).expect("reads").flatten();
        all.any(|one| one.path().join("shells/s").is_file()).then_some(())
    });
    process::kill(server.agent());
    wait_until("it has failed", SOON, || (sandbox.info()["state"] == "failed").then_some(()));
    let id = sandbox.id.as_str();
    let recovered = run(server.program().args(["recover", id])).well().out;
    assert!(
        recovered.starts_with(&format!("{id} is sleeping\n  lost: shells, processes")),
        "{recovered}"
    );
    assert!(recovered.contains("lost of the shell of session s: changes since 20"), "{recovered}");
    let again = run(server.program().args(["recover", "--json", id])).well().out;
    let again: Value = again.parse().expect("JSON");
    assert_eq!(again[0]["lost_state"][0]["why"], "crash", "{again}");
    let reported = sandbox.command("s", "echo $x; pwd; cat /workspace/f");
    assert_eq!(reported["stdout"], "kept\n/tmp\nacked\n", "{reported}");
    assert!(reported["lost"].is_array(), "a command reports it again: {reported}");
    let none = run(server.program().args(["recover", id])).well().out;
    assert_eq!(none, format!("{id} is running\n"), "nothing is left to report");
    let missing = run(server.program().args(["recover", "missing", id]));
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("missing") && missing.out.contains(id), "{missing:?}");
    sandbox.delete();
    server.healthy();
}

/// Promises: L15.
#[test]
fn sandboxes_are_paused_and_resumed_by_the_command_line() {
    let (server, sandbox) = one();
    let id = sandbox.id.as_str();
    sandbox.command("s", "A=kept; sleep 1000 & true");
    let paused = run(server.program().args(["pause", id])).well().out;
    assert_eq!(paused, format!("{id} is paused\n"));
    let listed = run(server.program().args(["ls"])).well().out;
    assert!(listed.contains("paused"), "{listed}");
    let refused = run(server.program().args(["exec", id, "true"]));
    assert!(refused.err.contains("is paused") && refused.err.contains("resume"), "{refused:?}");
    let missing = run(server.program().args(["pause", "missing", id, "--json"]));
    assert_eq!(missing.code, Some(1));
    let all: Value = missing.out.parse().expect("JSON");
    assert_eq!((&all[0]["state"], missing.err.contains("missing")), (&"paused".into(), true));
    let resumed = run(server.program().args(["resume", id])).well().out;
    assert_eq!(resumed, format!("{id} is running\n"));
    assert_eq!(sandbox.command("s", "echo $A; jobs -r | wc -l")["stdout"], "kept\n1\n");
    sandbox.delete();
    server.healthy();
}

#[test]
fn keys_are_listed_with_their_expiry_and_last_use() {
    let mut server = Server::start();
    let used = server.add_key(&["--label", "used", "--expires", "30d"]);
    server.add_key(&["--label", "unused"]);
    let keys = |server: &Server| -> Value {
        let listed = run(server.program().args(["keys", "ls", "--json"])).well().out;
        listed.parse().expect("JSON")
    };
    let find = |all: &Value, label: &str| {
        all.as_array()
            .expect("a list")
            .iter()
            .find(|key| key["label"] == label)
            .cloned()
            .expect("is listed")
    };
    let http = isolet_kit::Http::new(server.port(), Some(&used));
    http.get("/v1/sandboxes").expect(200);
    // The server records the use when it stops.
    server.stop();
    let all = keys(&server);
    assert!(find(&all, "used")["last_used_at_ms"].as_i64().is_some_and(|ms| ms > 0), "{all}");
    assert!(find(&all, "used")["expires_at_ms"].is_i64(), "{all}");
    assert!(find(&all, "unused")["last_used_at_ms"].is_null(), "{all}");
    let text = run(server.program().args(["keys", "ls"])).well().out;
    let unused = text.lines().find(|line| line.ends_with("unused")).expect("is listed");
    assert_eq!(unused.matches("never").count(), 2, "{text}");
    let line = text.lines().find(|line| line.ends_with(" used")).expect("is listed");
    assert!(line.matches("Z ").count() == 2 && !line.contains("never"), "{text}");
}
