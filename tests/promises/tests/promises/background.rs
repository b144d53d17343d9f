//! Background jobs: they do not delay a command, and their output is not attributed to it.

use isolet_kit::{Rows, SOON, Start, one, quickly};
use std::time::Duration;

/// Far shorter than the jobs of these rows sleep.
const AT_ONCE: Duration = SOON;

/// Promises: S7.
#[test]
fn a_background_job_delays_no_command() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let jobs = [
        ("sleep", "sleep 1000 & echo next", "next\n"),
        ("a job that holds the pipes", "(sleep 1000; echo late) & echo next", "next\n"),
        ("nohup", "nohup sleep 1000 >/dev/null 2>&1 & echo next", "next\n"),
        ("setsid", "setsid sleep 1000 & echo next", "next\n"),
        ("a grandchild that holds the pipes", "(sleep 1000 & ) ; echo next", "next\n"),
        ("coproc", "coproc cat; echo next", "next\n"),
    ];
    for (name, text, out) in jobs {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            let outcome = quickly(name, AT_ONCE, || shell.run(text));
            outcome.is(out, 0);
            shell.run("echo again").is("again\n", 0);
        });
    }
    rows.row("bash's line with the job number is not shown", || {
        let outcome = sandbox.run("sleep 1000 &");
        assert!(outcome.err.is_empty(), "{outcome:?}");
    });
}

/// Promises: S7.
#[test]
fn later_output_of_a_job_belongs_to_no_command() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.shell();
    shell.run("mkfifo /tmp/go; (read x </tmp/go; echo later; echo worse >&2) &").is("", 0);
    shell.run("echo between").is("between\n", 0);
    sandbox.says("echo x >/tmp/go");
    shell.wait_for_background("later\n");
    shell.wait_for_background("worse\n");
    shell.run("jobs >/dev/null; echo after").is("after\n", 0);
}

#[test]
fn a_job_that_floods_leaves_the_shell_usable() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.shell();
    let id = shell.start(Start::new("yes flood & echo started; p=$!"));
    let outcome = shell.finish(&id);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.text().contains("started\n"));
    for _ in 0..20 {
        let outcome = quickly("a command beside a flood", AT_ONCE, || shell.run("echo mine"));
        assert!(outcome.text().contains("mine\n"));
    }
    assert_eq!(shell.run("kill $p; wait $p; :").code, Some(0));
    quickly("a quiet shell", AT_ONCE, || shell.run("echo quiet").is("quiet\n", 0));
}
