//! What persists between the commands of a shell, and what does not leak between them.

use isolet_kit::{Outcome, Rows, SOON, Shell, Start, json, one, quickly};

/// Promises: S2, G5.
#[test]
fn a_shell_keeps_the_state_that_a_terminal_would() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let pairs = [
        ("cd", "cd /usr/share", "pwd", "/usr/share\n"),
        ("cd -", "cd /usr; cd /tmp", "cd - >/dev/null; pwd", "/usr\n"),
        ("export", "export FOO=bar", "sh -c 'echo $FOO'", "bar\n"),
        ("plain variables", "X=42", "echo $X", "42\n"),
        (
            "arrays",
            "declare -a a=(1 'b c' 3); declare -A m=([k]=v)",
            "echo ${#a[@]} \"${a[1]}\" ${m[k]}",
            "3 b c v\n",
        ),
        ("integers", "declare -i n=4", "n+=3; echo $n", "7\n"),
        ("functions", "greet() { echo \"hi $1\"; }", "greet you", "hi you\n"),
        ("exported functions", "f() { echo f; }; export -f f", "bash -c f", "f\n"),
        ("aliases", "alias ll='echo listed'", "ll", "listed\n"),
        ("positional arguments", "set -- a b c", "echo $# $2", "3 b\n"),
        ("umask", "umask 027", "umask", "0027\n"),
        ("shopt", "shopt -s nullglob", "echo [/no/such]*", "\n"),
        ("ulimit", "ulimit -S -n 100", "ulimit -n", "100\n"),
        ("traps", "trap 'echo usr' USR1", "kill -USR1 $$", "usr\n"),
        ("$! and wait", "sleep 0.01 & p=$!", "wait $p; echo done $?", "done 0\n"),
        ("$_ within a command", ":", "echo a b >/dev/null; echo $_", "b\n"),
        ("$PPID is no secret, $$ stays", "a=$$", "[ $a = $$ ] && echo same", "same\n"),
        ("history by hand", "history -s 'one two'", "history | grep -c ' one two$'", "1\n"),
        (
            "huge environment",
            "export BIG=$(head -c 100000 /dev/zero | tr '\\0' x)",
            "/bin/true; echo ${#BIG}",
            "100000\n",
        ),
    ];
    for (name, first, then, out) in pairs {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            let begin = shell.run(first);
            assert_eq!(begin.code, Some(0), "{begin:?}");
            let said = shell.run(then);
            assert!(said.err.is_empty(), "{said:?}");
            said.is(out, 0);
        });
    }
}

/// Promises: S2.
#[test]
fn the_last_status_carries_over_to_the_next_command() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.shell();
    for code in [0, 1, 2, 7, 126, 127, 128, 130, 255] {
        shell.run(&format!("(exit {code})")).is("", code);
        shell.run("echo $?").is(&format!("{code}\n"), 0);
        shell.run("echo $?").is("0\n", 0);
    }
    shell.run("if false; then :; fi; false || echo no").is("no\n", 0);
    shell.run("false | true").is("", 0);
    shell.run("set -o pipefail; false | true").is("", 1);
    shell.run("[ $? = 1 ] && echo kept").is("kept\n", 0);
}

/// Promises: S5.
#[test]
fn a_command_without_input_reads_the_end_at_once() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let cases = [
        ("read", "read line; echo $?", "1\n", 0),
        ("cat", "cat", "", 0),
        (
            "read after an input redirection of the shell",
            "exec </dev/null; read x; echo $?",
            "1\n",
            0,
        ),
        ("python3 without input", "python3", "", 0),
        (
            "getpass",
            "python3 -c 'import getpass; getpass.getpass()' 2>/dev/null; echo $?",
            "1\n",
            0,
        ),
        ("/dev/tty", "(echo x >/dev/tty) 2>/dev/null; echo $?", "1\n", 0),
        (
            "ssh to an unknown host",
            "ssh -o BatchMode=no nobody@no-such-host.invalid true 2>/dev/null; echo $?",
            "255\n",
            0,
        ),
    ];
    for (name, text, out, code) in cases {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            quickly(name, SOON, || shell.run(text).is(out, code));
        });
    }
}

/// Runs a command with input that is sent in pieces.
fn fed(shell: &mut Shell, text: &str, pieces: &[&str]) -> Outcome {
    let id = shell.start(Start::new(text).with("stdin", true));
    for piece in pieces {
        shell.send(&json!({ "type": "shell_stdin", "id": id, "data": piece }));
    }
    shell.send(&json!({ "type": "shell_stdin", "id": id, "eof": true }));
    shell.finish(&id)
}

/// Promises: S5.
#[test]
fn a_command_that_asks_for_input_gets_its_own() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("cat", || fed(&mut sandbox.shell(), "cat", &["a\n", "b"]).is("a\nb", 0));
    rows.row("read, then cat", || {
        let mut shell = sandbox.shell();
        fed(&mut shell, "read x; echo \"<$x>\"; cat", &["first\nsec", "ond\n"])
            .is("<first>\nsecond\n", 0);
        shell.run("cat; echo $x").is("first\n", 0);
    });
    rows.row("python", || fed(&mut sandbox.shell(), "python3", &["print(6*7)\n"]).is("42\n", 0));
    rows.row("an immediate end of input", || fed(&mut sandbox.shell(), "wc -c", &[]).is("0\n", 0));
    rows.row("a megabyte", || {
        let piece = "x".repeat(50_000);
        fed(&mut sandbox.shell(), "wc -c", &[piece.as_str(); 20]).is("1000000\n", 0);
    });
    rows.row("unread input does not reach the next command", || {
        let mut shell = sandbox.shell();
        fed(&mut shell, "echo no", &["echo injected\n"]).is("no\n", 0);
        shell.run("cat").is("", 0);
        fed(&mut shell, "cat", &["own"]).is("own", 0);
    });
}

/// Promises: S9.
#[test]
fn a_directory_and_an_environment_for_one_command_are_restored() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let env = |value: isolet_kit::Value, text: &str| Start::new(text).with("env", value);
    rows.row("cwd", || {
        let mut shell = sandbox.shell();
        shell.run("cd /usr").is("", 0);
        shell.run_with(Start::new("pwd").with("cwd", "/tmp")).is("/tmp\n", 0);
        shell.run("pwd").is("/usr\n", 0);
    });
    rows.row("a cd of the command itself persists", || {
        let mut shell = sandbox.shell();
        shell.run_with(Start::new("cd /usr/share").with("cwd", "/tmp")).is("", 0);
        shell.run("pwd").is("/usr/share\n", 0);
    });
    rows.row("cd - is not disturbed", || {
        let mut shell = sandbox.shell();
        shell.run("cd /usr; cd /usr/share").is("", 0);
        shell.run_with(Start::new(":").with("cwd", "/tmp")).is("", 0);
        shell.run("cd -").is("/usr\n", 0);
    });
    rows.row("a missing cwd fails and runs nothing", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run_with(Start::new("echo ran").with("cwd", "/no/such"));
        assert!(outcome.out.is_empty() && outcome.code != Some(0), "{outcome:?}");
        shell.run("pwd").is("/workspace\n", 0);
    });
    rows.row("env", || {
        let mut shell = sandbox.shell();
        shell.run("export A=old; B=plain").is("", 0);
        shell
            .run_with(env(
                json!({"A": "new", "B": "it's \"$x\"\n", "C": "c"}),
                "sh -c 'echo $A $B $C'",
            ))
            .is("new it's \"$x\" c\n", 0);
        shell
            .run("echo $A $B ${C-unset}; sh -c 'echo ${B-unset}'")
            .is("old plain unset\nunset\n", 0);
    });
    rows.row("null unsets a variable", || {
        let mut shell = sandbox.shell();
        shell.run("export A=old").is("", 0);
        shell.run_with(env(json!({"A": null}), "echo ${A-unset}")).is("unset\n", 0);
        shell.run("echo $A").is("old\n", 0);
    });
    rows.row("changes of the command itself persist", || {
        let mut shell = sandbox.shell();
        shell.run_with(env(json!({"A": "given"}), "export A=changed")).is("", 0);
        shell.run("echo $A").is("changed\n", 0);
    });
    rows.row("$? is neither hidden nor changed", || {
        let mut shell = sandbox.shell();
        shell.run("(exit 9)").is("", 9);
        shell
            .run_with(env(json!({"A": "1"}), "echo $?; (exit 8)").with("cwd", "/tmp"))
            .is("9\n", 8);
        shell.run("echo $?").is("8\n", 0);
    });
    rows.row("a bad name is refused", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run_with(env(json!({"A=B; touch /tmp/x": "1"}), "echo ran"));
        assert!(outcome.code.is_none() && outcome.refused["message"].is_string(), "{outcome:?}");
        shell.run("ls /tmp").is("", 0);
    });
}

#[test]
fn the_driver_is_invisible_to_commands() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    rows.row("set -x", || {
        let mut shell = sandbox.shell();
        shell.run("set -x").is("", 0);
        let outcome = shell.run("echo ho");
        outcome.is("ho\n", 0);
        assert_eq!(outcome.errors(), "++ echo ho\n");
        let failed = shell.run("false");
        assert_eq!(failed.errors(), "++ false\n");
        assert_eq!(shell.run("echo $?").errors(), "++ echo 1\n");
    });
    rows.row("set -v", || {
        let mut shell = sandbox.shell();
        shell.run("set -v").is("", 0);
        shell.run("echo ho").is("ho\n", 0);
    });
    rows.row("prompts are silent", || {
        let mut shell = sandbox.shell();
        shell.run("PS1='$ '; PROMPT_COMMAND='echo pc'").is("", 0);
        let outcome = shell.run("echo hi");
        outcome.is("hi\n", 0);
        assert!(outcome.err.is_empty(), "{outcome:?}");
    });
    rows.row("a .bashrc of Debian's kind runs", || {
        let mut shell = sandbox.shell();
        let file = "case $- in *i*) ;; *) return;; esac\nalias ll='echo listed'\nPS1='\\u\\$ '\n";
        shell.run(&format!("cat > ~/.bashrc <<'END'\n{file}END\n. ~/.bashrc")).is("", 0);
        let outcome = shell.run("ll");
        outcome.is("listed\n", 0);
        assert!(outcome.err.is_empty(), "{outcome:?}");
    });
    rows.row("the history holds the commands and nothing else", || {
        let mut shell = sandbox.shell();
        shell.run("echo one").is("one\n", 0);
        shell.run("echo 'two\nlines'").is("two\nlines\n", 0);
        let outcome = shell.run("history");
        assert!(outcome.text().contains("echo one"), "{outcome:?}");
        assert!(!outcome.text().contains("__is"), "{outcome:?}");
    });
    rows.row("no file of history is written", || {
        let mut shell = sandbox.shell();
        shell.run("echo secret; exit").is("secret\n", 0);
        sandbox.run("ls ~/.bash_history 2>/dev/null; :").is("", 0);
    });
}
