//! `isolet shell` at a terminal: line editing, a history in a file, and a terminal that is restored.

use isolet_kit::{Pty, Server};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn shell(server: &Server, history: &Path, args: &[&str]) -> Pty {
    let mut program = server.program();
    program.arg("shell").args(args).env("NO_COLOR", "1").env("TERM", "xterm");
    program.env("ISOLET_SHELL_HISTORY", history);
    Pty::start(&program, 80, 24)
}

#[test]
fn typed_lines_can_be_edited_and_come_back_from_the_history() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let history = folder.path().join("own/history");
    let mut pty = shell(&server, &history, &["a"]);
    let before = format!("{:?}", pty.settings());
    let mut from = pty.sees("a$ ");
    // Left, then a character in the middle of the word.
    pty.type_in("echo o-e\x1b[Dn\r");
    from = pty.sees_after(from, "\no-ne\r\n");
    from = pty.sees_after(from, "a$ ");
    pty.type_in(" echo sec''ret\r");
    from = pty.sees_after(from, "\nsecret\r\n");
    from = pty.sees_after(from, "a$ ");
    pty.type_in("for i in 1 2; do\r");
    from = pty.sees_after(from, "> ");
    pty.type_in("echo n$i; done\r");
    from = pty.sees_after(from, "\nn1\r\nn2\r\n");
    from = pty.sees_after(from, "a$ ");
    // Output without an end of line is not drawn over.
    pty.type_in("printf part; (exit 3)\r");
    from = pty.sees_after(from, "\npart\r\n[exit 3]\r\n");
    from = pty.sees_after(from, "a$ ");
    pty.type_in("half a line\x03");
    from = pty.sees_after(from, "a$ ");
    pty.type_in("echo be''gan; sleep 60\r");
    from = pty.sees_after(from, "\nbegan\r\n");
    pty.type_in("\x03");
    from = pty.sees_after(from, "[exit 130]\r\n");
    pty.sees_after(from, "a$ ");
    pty.type_in("(exit 4)\r");
    from = pty.sees_after(from, "[exit 4]\r\n");
    pty.sees_after(from, "a$ ");
    pty.type_in("\x04");
    assert_eq!(pty.ended(), 4);
    assert_eq!(before.len(), format!("{:?}", pty.settings()).len());
    assert!(!pty.is_raw());
    let stored = std::fs::read_to_string(&history).expect("it is written");
    assert!(stored.contains("echo o-ne") && stored.contains("echo n$i"), "{stored}");
    assert!(!stored.contains("secret"), "a command behind a space is not stored: {stored}");
    let metadata = history.metadata().expect("is there");
    assert_eq!(metadata.mode() & 0o777, 0o600);
    let directory = history.parent().expect("has one").metadata().expect("is there");
    assert_eq!(directory.mode() & 0o777, 0o700);
    let mut again = shell(&server, &history, &["a"]);
    let from = again.sees("a$ ");
    // Ctrl-R finds the first command of the earlier shell.
    again.type_in("\x12o-ne");
    let from = again.sees_after(from, "echo o-ne");
    again.type_in("\r");
    let from = again.sees_after(from, "\no-ne\r\n");
    again.sees_after(from, "a$ ");
    again.type_in("exit 9\r");
    assert_eq!(again.ended(), 9);
}

#[test]
fn a_shell_that_ends_while_a_line_is_typed_restores_the_terminal() {
    let server = Server::start();
    let mut pty = shell(&server, Path::new(""), &["a"]);
    let from = pty.sees("a$ ");
    // Output of a background job appears above the line that is being typed.
    pty.type_in("(until [ -e go ]; do sleep 0.05; done; echo la''ter) &\r");
    let from = pty.sees_after(from, "a$ ");
    pty.type_in("unfinished");
    let from = pty.sees_after(from, "unfinished");
    server.named("a").says("touch go");
    let from = pty.sees_after(from, "later");
    pty.sees_after(from, "unfinished");
    assert!(pty.is_raw());
    let deleted = crate::programs::run(server.program().args(["rm", "a"]));
    deleted.well();
    assert_eq!(pty.ended(), 125);
    assert!(!pty.is_raw());
}
