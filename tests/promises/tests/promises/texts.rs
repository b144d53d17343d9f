//! The text of a command is data: however unusual it is, the shell survives and the next command
//! works.

use isolet_kit::{Rows, Shell, Start, one};

fn lives(shell: &mut Shell) {
    shell.run("echo lives").is("lives\n", 0);
}

/// Promises: S1.
#[test]
fn invalid_command_texts_fail_and_leave_the_shell() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let broken = [
        ("unclosed quote", "echo \"abc"),
        ("unclosed single quote", "echo 'abc"),
        ("unclosed substitution", "echo $(ls"),
        ("unclosed brace", "f() {"),
        ("syntax error: then", "if then"),
        ("syntax error: brace", "}"),
        ("syntax error: parenthesis", ")"),
        ("syntax error: double semicolon", ";;"),
    ];
    for (name, text) in broken {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            let outcome = shell.run(text);
            assert!(matches!(outcome.code, Some(1 | 2)), "{outcome:?}");
            assert!(outcome.out.is_empty() && !outcome.err.is_empty(), "{outcome:?}");
            assert!(!outcome.errors().contains("__is"), "{outcome:?}");
            lives(&mut shell);
        });
    }
    rows.row("long unclosed quote", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run(&format!("echo \"{}", "x".repeat(5000)));
        assert!(matches!(outcome.code, Some(1 | 2)), "{:?}", outcome.code);
        lives(&mut shell);
    });
    rows.row("unclosed heredoc", || {
        let mut shell = sandbox.shell();
        let outcome = shell.run("cat <<END\nabc");
        outcome.is("abc\n", 0);
        assert!(outcome.errors().contains("here-document"), "{outcome:?}");
        lives(&mut shell);
    });
}

/// Promises: S1.
#[test]
fn complete_command_texts_run_unchanged() {
    let (_server, sandbox) = one();
    let mut rows = Rows::new();
    let good = [
        ("trailing backslash", "echo a \\", "a \\\n"),
        ("comment", "echo a # not this", "a\n"),
        ("comment alone", "# nothing", ""),
        ("empty", "", ""),
        ("blank lines", "\n\n  \n", ""),
        ("quotes in quotes", "echo 'a'\\''b' \"c'd\"", "a'b c'd\n"),
        (
            "multi-line script",
            "for i in 1 2 3\ndo\n  if [ $i = 2 ]; then\n    echo two\n  fi\ndone",
            "two\n",
        ),
        ("heredoc", "cat <<END\na $((1+1))\nEND", "a 2\n"),
        ("quoted heredoc", "cat <<'END'\n$HOME `x`\nEND", "$HOME `x`\n"),
        ("indented heredoc", "cat <<-END\n\ta\n\tEND", "a\n"),
        ("exclamation mark", "echo \"a!b\" !x", "a!b !x\n"),
        ("percent and backslash", "printf '%s' '%s\\n'", "%s\\n"),
        ("unicode", "echo 'žluťoučký 日本 🦀'", "žluťoučký 日本 🦀\n"),
        ("carriage return stays", "printf 'a\\r\\n'", "a\r\n"),
    ];
    for (name, text, out) in good {
        rows.row(name, || {
            let mut shell = sandbox.shell();
            shell.run(text).is(out, 0);
            lives(&mut shell);
        });
    }
    rows.row("long text keeps $?", || {
        let mut shell = sandbox.shell();
        shell.run("(exit 7)").is("", 7);
        shell.run(&format!("echo $? # {}", "x".repeat(5000))).is("7\n", 0);
        shell.run("echo $?").is("0\n", 0);
    });
    for length in [100_usize, 899, 900, 901, 4096, 65_536, 1_000_000] {
        rows.row(&format!("text of {length} bytes"), || {
            let mut shell = sandbox.shell();
            let text = format!("x='{}'; echo ${{#x}}", "y".repeat(length));
            shell.run(&text).is(&format!("{length}\n"), 0);
        });
    }
}

/// Promises: S1.
#[test]
fn a_command_text_with_nul_is_refused_and_the_shell_survives() {
    let (_server, sandbox) = one();
    let mut shell = sandbox.shell();
    let refused = shell.run("echo a\0b");
    assert!(refused.code.is_none() && refused.refused["message"].is_string(), "{refused:?}");
    lives(&mut shell);
    shell
        .run_with(Start::new("echo $A").with("env", isolet_kit::json!({ "A": "ok" })))
        .is("ok\n", 0);
}
