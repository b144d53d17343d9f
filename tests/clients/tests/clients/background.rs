//! The process commands of the command line: output for scripts, output for people, and errors.

use crate::programs::{ProgramOutput, run};
use isolet_kit::{SOON, Server, Value, wait_until};
use std::io::Read;
use std::process::{Command, Stdio};

fn isolet(server: &Server, args: &[&str]) -> ProgramOutput {
    run(server.program().args(args))
}

fn listed(server: &Server) -> Value {
    isolet(server, &["ps", "a", "--json"]).well().out.parse().expect("JSON")
}

/// Promises: J15.
#[test]
fn a_process_is_started_listed_read_and_killed_by_its_id() {
    let server = Server::start();
    let none = isolet(&server, &["ps", "a"]);
    assert_eq!(none.code, Some(1), "reading creates no sandbox: {}", none.err);
    let made = isolet(
        &server,
        &["start", "a", "-e", "A=1", "-w", "/tmp", "echo $A $PWD; echo e >&2; exit 3"],
    );
    let made = made.well().out;
    let id = made.trim_end();
    assert!(id.starts_with("proc_") && made.lines().count() == 1, "{made:?}");
    let followed = isolet(&server, &["logs", "a", id, "--follow"]).well();
    assert_eq!((&*followed.out, &*followed.err), ("1 /tmp\n", "e\n"));
    let rest = isolet(&server, &["logs", "a", id, "--since", "7"]).well();
    assert_eq!((&*rest.out, &*rest.err), ("", "e\n"), "both streams share one order");
    let argv = isolet(
        &server,
        &[
            "start",
            "a",
            "--id",
            "web",
            "--line",
            "up",
            "--",
            "bash",
            "-c",
            "trap 'echo hup' HUP; echo up; while :; do sleep 0.1; done",
        ],
    );
    assert_eq!(argv.well().out, "web\n");
    let taken = isolet(&server, &["start", "a", "--id", "web", "true"]);
    assert!(
        taken.code == Some(1) && taken.err.contains("web") && taken.err.contains("--rm"),
        "{}",
        taken.err
    );
    let table = isolet(&server, &["ps", "a"]).well().out;
    assert!(table.contains("exited (exit 3)") && table.contains("web"), "{table}");
    assert!(!table.contains('\x1b'), "{table:?}");
    isolet(&server, &["kill", "a", "web", "--only", "-s", "HUP"]).well();
    wait_until("the signal is heard", SOON, || {
        let said = isolet(&server, &["logs", "a", "web"]).well().out;
        (said == "up\nhup\n").then_some(())
    });
    assert_eq!(listed(&server)[1]["status"], "running");
    let killed = isolet(&server, &["kill", "a", "nosuch", "web", "--rm", "--grace", "2"]);
    assert_eq!(killed.code, Some(1));
    assert!(killed.err.contains("nosuch") && killed.err.contains("isolet ps a"), "{}", killed.err);
    assert!(killed.err.contains("web: killed (signal"), "{}", killed.err);
    assert_eq!(listed(&server).as_array().expect("a list").len(), 1, "it is forgotten");
}

/// Promises: J15.
#[test]
fn a_process_that_does_not_come_up_is_reported_with_a_hint() {
    let server = Server::start();
    let ended =
        isolet(&server, &["start", "a", "--id", "gone", "--line", "never", "echo no; exit 4"]);
    assert_eq!((ended.code, &*ended.out), (Some(1), "gone\n"));
    assert!(
        ended.err.contains("exited (exit 4)") && ended.err.contains("isolet logs a gone"),
        "{}",
        ended.err
    );
    let late = isolet(
        &server,
        &["start", "a", "--id", "late", "--port", "9", "--wait", "0.2", "sleep 1000"],
    );
    assert!(late.code == Some(1) && late.err.contains("late is running"), "{}", late.err);
    for (args, word) in [
        (&["start", "a"][..], "COMMAND"),
        (&["start", "a", "--port", "0", "true"], "--port"),
        (&["start", "a", "--wait", "0", "true"], "--wait"),
        (&["kill", "a"], "PROCESS"),
        (&["kill", "a", "late", "--grace", "61"], "--grace"),
        (&["kill", "a", "late", "--signal", "NOPE"], "signal"),
        (&["logs", "a", "late", "--since", "x"], "now"),
        (&["logs", "a", "nosuch"], "isolet ps a"),
    ] {
        let said = isolet(&server, args);
        assert!(matches!(said.code, Some(1 | 2)), "{args:?}");
        assert!(said.err.contains(word), "{args:?}: {}", said.err);
    }
    assert_eq!(listed(&server)[1]["status"], "running", "none of these ended it");
}

/// Promises: J15.
#[test]
fn a_log_is_followed_until_its_process_ends_and_its_bytes_are_exact() {
    let server = Server::start();
    isolet(
        &server,
        &[
            "start",
            "a",
            "--id",
            "talk",
            "printf '\\xff\\0one\\n'; until [ -e /tmp/go ]; do sleep 0.05; done; echo two",
        ],
    )
    .well();
    let mut command: Command = server.program();
    command.args(["logs", "a", "talk", "-f"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut first = [0; 6];
    child.stdout.as_mut().expect("asked for").read_exact(&mut first).expect("reads");
    assert_eq!(&first, b"\xff\0one\n");
    isolet(&server, &["exec", "a", "touch /tmp/go"]).well();
    let rest = child.wait_with_output().expect("ends");
    assert_eq!((rest.status.code(), &*rest.stdout), (Some(0), &b"two\n"[..]));
    let later = run(server.program().args(["logs", "a", "talk", "-f", "--since", "6"])).well();
    assert_eq!(later.out, "two\n", "from there on");
    let mut endless = server.program();
    isolet(&server, &["start", "a", "--id", "loud", "while echo line; do :; done"]).well();
    endless.args(["logs", "a", "loud", "-f"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = endless.spawn().expect("starts");
    drop(child.stdout.take());
    let unread = child.wait_with_output().expect("ends");
    assert_eq!((unread.status.code(), unread.stderr.len()), (Some(141), 0));
    isolet(&server, &["kill", "a", "loud", "-s", "KILL"]).well();
}
