//! What ends a shell, what does not, and what the client gets.

use isolet_kit::{Outcome, Rows, SOON, Shell, Start, json, one, quickly};

fn lives(shell: &mut Shell) {
    shell.run("echo lives").is("lives\n", 0);
}

/// Promises: S8.
#[test]
fn the_end_of_a_shell_is_reported_once_with_its_reason() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let ends = [
        ("exit 3", "exit 3", "", 3),
        ("exit in a function", "f() { echo in; exit 9; }; f", "in\n", 9),
        ("exit 3 with a background job", "sleep 1000 & exit 3", "", 3),
        ("exec of a program", "exec echo last", "last\n", 0),
        ("set -e, then false", "set -e; false", "", 1),
        ("trap EXIT, then exit", "trap 'echo bye' EXIT; exit 4", "bye\n", 4),
    ];
    for (name, text, out, code) in ends {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            let outcome = shell.run("echo before; export A=1");
            outcome.is("before\n", 0);
            quickly(name, SOON, || shell.run(text).is(out, code));
            let closed = shell.ended();
            assert_eq!(closed["code"].as_i64(), Some(code), "{closed}");
            assert!(closed["cause"].is_string(), "{closed}");
        });
    }
    rows.row("kill -9 $$", || {
        let mut shell = sandbox.shell();
        shell.run("kill -9 $$").is("", 137);
        assert_eq!(shell.ended()["signal"].as_i64(), Some(9));
    });
    rows.row("set -e in an earlier command", || {
        let mut shell = sandbox.shell();
        shell.run("set -e; true").is("", 0);
        shell.run("echo on; false; echo off").is("on\n", 1);
        assert_eq!(shell.ended()["code"].as_i64(), Some(1));
    });
    rows.row("the last byte precedes the end", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run("seq 20000; exit 5");
        assert_eq!((outcome.out.len(), outcome.code), (108_894, Some(5)));
        assert_eq!(shell.ended()["code"].as_i64(), Some(5));
    });
}

#[test]
fn commands_that_crash_other_engines_leave_the_shell() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let odd: [(&str, &str, &[i64]); 14] = [
        ("exec of a missing program", "exec /no/such", &[126, 127]),
        ("exec of a missing name", "exec no-such-program-here", &[126, 127]),
        ("set -u and an unset variable", "set -u; echo $nope; echo rest", &[1, 127]),
        ("${x:?message}", "echo ${x:?message}; echo rest", &[1, 127]),
        ("division by zero", "echo $((1/0)); echo rest", &[1]),
        ("return at the top", "return 5", &[1, 2]),
        ("break at the top", "break", &[0, 1]),
        ("continue at the top", "continue", &[0, 1]),
        ("kill -TERM $$", "kill -TERM $$", &[0]),
        ("kill -HUP to a child", "(kill -HUP $BASHPID)", &[129]),
        ("a missing command", "no-such-command", &[127]),
        ("a directory as a command", "/tmp", &[126]),
        ("a child that crashes", "(kill -SEGV $BASHPID)", &[139]),
        ("an assignment to a readonly", "readonly r=1; r=2", &[1]),
    ];
    for (name, text, codes) in odd {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            let outcome = shell.run(text);
            let code = outcome.code.expect("it has ended");
            assert!(codes.contains(&code), "{outcome:?}");
            assert!(outcome.out.is_empty(), "the rest ran: {outcome:?}");
            lives(&mut shell);
        });
    }
}

/// Promises: S4.
#[test]
fn output_that_breaks_sentinels_leaves_the_shell() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let nasty = [
        (
            "functions named as the driver's words",
            "echo() { :; }; read() { :; }; eval() { :; }; mapfile() { :; }; printf() { :; }; exec() { :; }; trap() { :; }",
        ),
        ("aliases of the driver's words", "alias echo=false eval=false printf=false builtin=false"),
        ("PATH=", "PATH="),
        ("rm -rf /tmp/* /run/*", "rm -rf /tmp/* /tmp/.[!.]* /run/* 2>/dev/null; :"),
        ("IFS of digits", "IFS=0123456789"),
        ("set -f", "set -f"),
        ("posix mode", "set -o posix"),
        ("nullglob and failglob", "shopt -s nullglob failglob"),
        ("PROMPT_COMMAND and PS1", "PROMPT_COMMAND='echo pc'; PS1='$ '; PS2='> '"),
        ("PS4", "PS4='$(echo p4)'"),
        ("traps", "trap 'echo debug >/dev/null' DEBUG; trap : ERR"),
        ("unset of the driver's variables", "unset -v __ise __ist"),
        ("set -k and set -t's like", "set -k"),
        ("noglob, noclobber, allexport", "set -a -C -f"),
        ("ulimit -n 40", "ulimit -n 40"),
    ];
    for (name, text) in nasty {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            let outcome = shell.run(text);
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            let next = shell.run("(exit 35)");
            assert_eq!((next.code, next.out.len()), (Some(35), 0), "{next:?}");
            let long = format!("\\command -p printf '%s' \"$?\"; : {}", "x".repeat(2000));
            shell.run(&long).is("35", 0);
        });
    }
}

/// The driver reaches bash's builtins by `builtin`, and by `command` when that name is redefined.
#[test]
fn functions_that_shadow_builtins_leave_the_shell_alive() {
    let (server, sandbox) = one();
    let mut rows = Rows::new();
    sandbox.exec("echo 'builtin() { :; }' >/tmp/lib");
    for (name, text) in [
        ("builtin, silent", "builtin() { :; }"),
        ("builtin, with function", "function builtin { echo mine; }"),
        ("builtin, from a file", ". /tmp/lib"),
        ("command", "command() { :; }"),
        ("builtin, and then traced", "builtin() { :; }; set -x"),
    ] {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            quickly("the definition", SOON, || shell.run(text)).is("", 0);
            assert_eq!(shell.run("(exit 3)").code, Some(3));
            let long = format!("echo $? here; : {}", "x".repeat(2000));
            assert_eq!(shell.run(&long).text(), "3 here\n");
            let start =
                Start::new("echo $A; pwd").with("env", json!({"A": "1"})).with("cwd", "/tmp");
            assert_eq!(shell.run_with(start).text(), "1\n/tmp\n");
            let id = shell.start(Start::new("echo up; sleep 100"));
            let mut outcome = Outcome::default();
            shell.follow(&id, &mut outcome, |so_far| so_far.out == b"up\n");
            shell.cancel(&id);
            quickly("its cancel", SOON, || shell.finish(&id));
            assert_eq!(shell.run("echo $A; pwd").text(), "\n/workspace\n");
        });
    }
    drop(rows);
    server.healthy();
}

/// The exit of a command says whether its shell has ended, without a wait for what follows.
#[test]
fn an_answer_says_that_the_shell_has_ended() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let cases = [
        ("true", "true", false),
        ("exit", "exit 3", true),
        ("exec", "exec true", true),
        ("much output, then exit", "seq 200000; exit 5", true),
        ("a subshell", "(exit 3)", false),
        ("killed", "kill -9 $$", true),
    ];
    for (name, command, ended) in cases {
        rows.row(name, || {
            let answer = sandbox.command("s", command);
            assert_eq!(answer["shell_ended"], ended, "{}", answer["exit_code"]);
            let next = sandbox.command("s", "true");
            assert_eq!((&next["fresh"], &next["shell_ended"]), (&json!(ended), &json!(false)));
        });
    }
    rows.row("a program", || {
        assert!(sandbox.exec("exit 3").get("shell_ended").is_none());
    });
}
