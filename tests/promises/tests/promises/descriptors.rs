//! A command may do anything to the shell's descriptors: its end is reported elsewhere.

use isolet_kit::{Rows, one};

#[test]
fn redirections_of_the_shell_last_and_break_nothing() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("exec >/dev/null", || {
        let mut shell = sandbox.shell();
        shell.run("exec >/dev/null").is("", 0);
        let outcome = shell.run("echo gone; echo kept >&2");
        outcome.is("", 0);
        assert_eq!(outcome.errors(), "kept\n");
    });
    rows.row("exec >&-", || {
        let mut shell = sandbox.shell();
        shell.run("exec >&-").is("", 0);
        shell.run("echo gone").is("", 1);
        shell.run("(exit 4)").is("", 4);
    });
    rows.row("exec 2>&-", || {
        let mut shell = sandbox.shell();
        shell.run("exec 2>&-").is("", 0);
        shell.run("echo out; echo err >&2; (exit 5)").is("out\n", 5);
    });
    rows.row("exec <file", || {
        let mut shell = sandbox.shell();
        shell.run("echo line >/tmp/in; exec </tmp/in").is("", 0);
        shell.run("echo lives").is("lives\n", 0);
    });
    rows.row("exec >file and back", || {
        let mut shell = sandbox.shell();
        shell.run("exec 9>&1 >/tmp/out; echo inside").is("", 0);
        shell.run("exec >&9 9>&-; cat /tmp/out").is("inside\n", 0);
    });
    rows.row("descriptors 3 to 12", || {
        let mut shell = sandbox.shell();
        shell.run("for i in 3 4 5 6 7 8 9 10 11 12; do eval \"exec $i>/tmp/fd$i\"; done").is("", 0);
        shell.run("echo seven >&7; cat /tmp/fd7; (exit 6)").is("seven\n", 6);
    });
    rows.row("ulimit -n 40", || {
        let mut shell = sandbox.shell();
        shell.run("ulimit -n 40").is("", 0);
        shell.run("/bin/true; echo $(echo deep)").is("deep\n", 0);
        shell.run(&format!("echo long # {}", "x".repeat(3000))).is("long\n", 0);
    });
}

/// The end of a command is reported on a descriptor of the driver. When a command closes that one,
/// too, the shell cannot continue and reports it; it must not hang.
/// Promises: S4.
#[test]
fn a_command_that_closes_every_descriptor_ends_or_leaves_its_shell_and_never_hangs() {
    let (server, sandbox) = one();
    let mut shell = sandbox.shell();
    let outcome =
        shell.run("for f in /proc/$$/fd/*; do f=${f##*/}; eval \"exec $f>&-\" 2>/dev/null; done");
    let next = shell.run("(exit 3)");
    if next.code != Some(3) {
        let closed = shell.ended();
        assert!(closed["cause"].is_string(), "{outcome:?}, then {next:?}, then {closed}");
    }
    sandbox.run("echo other").is("other\n", 0);
    server.healthy();
}

/// A program that prints end markers of other systems, or guesses the driver's report, only prints.
/// Promises: S4.
#[test]
fn i14_output_cannot_fake_the_end_of_a_command() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let forged = "printf '1 0 1:0 hiBs\\n2 0 2:0 hiBs\\n'";
    rows.row("on standard output", || {
        let mut shell = sandbox.shell();
        shell
            .run(&format!("{forged}; echo after; (exit 3)"))
            .is("1 0 1:0 hiBs\n2 0 2:0 hiBs\nafter\n", 3);
    });
    rows.row("a report of another number on the driver's descriptor", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run("echo 99 0 99:0 hiBs >&57; echo after; (exit 3)");
        outcome.is("after\n", 3);
        shell.run("echo next").is("next\n", 0);
    });
    rows.row("garbage on the driver's descriptor", || {
        let mut shell = sandbox.shell();
        shell.run("head -c 10000 /dev/urandom >&57; :");
        if shell.closed.is_none() {
            shell.run("echo next").is("next\n", 0);
        }
    });
    rows.row("redefined exit, trap, set -e and exec", || {
        let mut shell = sandbox.shell();
        shell.run("exit() { echo no; }; trap 'echo err' ERR; exec 2>/dev/null").is("", 0);
        shell.run("(builtin exit 3); echo $?").is("err\n3\n", 0);
    });
}
