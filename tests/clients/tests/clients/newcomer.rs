//! A newcomer follows the README: its first session, typed exactly as written. Only the port and
//! the place of the key differ, because the test has its own server.

use crate::programs::checkout;
use isolet_kit::{Pty, Server, programs};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// The code blocks of the first session, in order.
fn blocks() -> Vec<String> {
    let text = fs::read_to_string(checkout().join("README.md")).expect("is there");
    let (_, after) = text.split_once("## A first session\n").expect("has this chapter");
    let (chapter, _) = after.split_once("\n## ").expect("has another");
    chapter.split("```").skip(1).step_by(2).map(|block| block.trim().to_owned()).collect()
}

/// Runs a text in bash with input and returns what it printed.
fn typed(server: &Server, text: &str, input: &str) -> String {
    let isolet = format!("isolet() {{ '{}' \"$@\"; }}\n", programs().join("isolet").display());
    // The directory of a person, who has a project in it.
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    fs::create_dir(folder.path().join("project")).expect("created");
    fs::write(folder.path().join("project/main.py"), "print(1)\n").expect("written");
    let mut bash = Command::new("bash")
        .args(["-euc", &(isolet + text)])
        .current_dir(folder.path())
        .env("ISOLET_URL", format!("http://127.0.0.1:{}", server.port()))
        .env("ISOLET_API_KEY", server.key())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash starts");
    let mut stdin = bash.stdin.take().expect("was asked for");
    // A command that reads nothing may have ended.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = bash.wait_with_output().expect("ends");
    assert!(output.status.success(), "{text}: {}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Attaches at a terminal and detaches with the keys that the README names.
fn attached(server: &Server, args: &str) {
    let mut program = server.program();
    program.arg("attach").args(args.split_whitespace());
    let mut pty = Pty::start(&program, 80, 24);
    pty.sees("/workspace");
    pty.line("echo at''tached", "attached");
    pty.type_in("\x1c\x04");
    assert_eq!(pty.ended(), 0, "{}", pty.text());
}

#[test]
fn a_newcomer_follows_the_readme_with_the_command_line() {
    let server = Server::start();
    let block = blocks().swap_remove(0);
    let steps: Vec<&str> = block.split("$ isolet ").skip(1).collect();
    assert!(steps.len() >= 6, "the first session has its steps: {block}");
    for step in steps {
        let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
        if let Some(rest) = command.strip_prefix("attach") {
            attached(&server, rest.split('#').next().unwrap_or_default());
            continue;
        }
        let shell = command.starts_with("shell");
        let said = typed(&server, &format!("isolet {command}"), if shell { "pwd\n" } else { "" });
        match command.split(' ').next() {
            Some("shell") => assert_eq!(said, "/tmp\n", "its session's directory"),
            Some("terminals") => assert!(said.contains("bash"), "what was left: {said}"),
            Some("ls" | "stats") => assert!(said.contains("demo"), "{said}"),
            _ if command.contains("uname") => assert!(said.starts_with("Linux "), "{said}"),
            _ => assert_eq!(said.trim(), shown.trim(), "{command}"),
        }
    }
    assert!(server.ids(&server.http()).is_empty());
}

#[test]
fn a_newcomer_follows_the_readme_with_curl() {
    let server = Server::start();
    let key = tempfile::NamedTempFile::new().expect("a file in /tmp");
    fs::write(key.path(), server.key()).expect("writes");
    let block = blocks().swap_remove(1);
    for place in ["/var/lib/isolet/key", "localhost:7300"] {
        assert!(block.contains(place), "it names {place}");
    }
    let block = block.replace("/var/lib/isolet/key", &key.path().display().to_string());
    let block = block.replace("localhost:7300", &format!("localhost:{}", server.port()));
    let (prelude, steps) = block.split_once("\n\n").expect("first the key, then the calls");
    let mut command = String::new();
    let mut checked = 0;
    for line in steps.lines() {
        let Some(shown) = line.strip_prefix("# ") else {
            command.push_str(line);
            command.push('\n');
            continue;
        };
        let said = typed(&server, &format!("{prelude}\n{command}"), "");
        let mut rest = said.as_str();
        for part in shown.split('…').map(str::trim) {
            let at = rest.find(part);
            let at = at.unwrap_or_else(|| panic!("{command}shows no {part:?} in:\n{said}"));
            rest = &rest[at + part.len()..];
        }
        command.clear();
        checked += 1;
    }
    assert!(checked >= 5 && command.is_empty(), "every call shows what comes back");
    assert!(server.ids(&server.http()).is_empty());
}
