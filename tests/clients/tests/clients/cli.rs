//! The command line behaves as users of `docker exec` and `ssh` expect: exit codes, pipes, scripts,
//! a terminal, and errors.

use crate::programs::{ProgramOutput, run};
use isolet_kit::{LONG, SOON, Server, wait_until};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// Runs a client command with empty input.
fn isolet(server: &Server, args: &[&str]) -> ProgramOutput {
    run(server.program().args(args))
}

/// Runs a client command with input.
fn fed(server: &Server, args: &[&str], input: &[u8]) -> ProgramOutput {
    let mut command = server.program();
    command.args(args);
    give(command, input)
}

fn give(mut command: Command, input: &[u8]) -> ProgramOutput {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut stdin = child.stdin.take().expect("was asked for");
    let input = input.to_owned();
    // The command may refuse before it has read all of its input.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("ends");
    feeding.join().expect("feeds");
    ProgramOutput::new(&command, output)
}

#[test]
fn exit_codes_are_those_of_docker_exec_and_timeout() {
    let server = Server::start();
    let own = server.named("a");
    own.says("printf 'x' >/tmp/plain; printf '\\x7fELFxx' >/tmp/bad; chmod +x /tmp/bad");
    for (code, args) in [
        (0, &["true"][..]),
        (7, &["exit 7"]),
        (3, &["sh", "-c", "exit 3"]),
        (127, &["nosuch"]),
        (127, &["nosuch", "argument"]),
        (126, &["/tmp/plain"]),
        (126, &["/tmp/plain", "argument"]),
        (126, &["/tmp/bad", "argument"]),
        (137, &["kill -9 $$"]),
        (143, &["sh", "-c", "kill -TERM $$"]),
        (125, &[]),
        (125, &["--nope", "ls"]),
        (125, &["-it", "bash"]),
        (125, &["--cwd", "/nosuch", "ls"]),
        (125, &["--env", "x", "ls"]),
        (124, &["--timeout", "0.2", "sleep 60"]),
        (124, &["--timeout", "0.2", "sleep", "60"]),
        (124, &["--session", "s", "--timeout", "0.2", "sleep 60"]),
        (127, &["--session", "s", "nosuch"]),
        (137, &["--session", "s", "bash", "-c", "kill -9 $$"]),
    ] {
        let said = isolet(&server, &[&["exec", "a"], args].concat());
        assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}");
        let silent = [0, 7, 3, 137, 143].contains(&code);
        assert!(silent || !said.err.is_empty(), "{args:?} says nothing");
    }
    let bad = isolet(&server, &["exec", "a!", "ls"]);
    assert_eq!(bad.code, Some(125));
    assert!(bad.err.contains("a!"), "{}", bad.err);
}

#[test]
fn a_missing_server_and_a_wrong_key_are_reported_with_a_hint() {
    let server = Server::start();
    for command in [&["exec", "a", "ls"][..], &["shell", "a"], &["ls"], &["rm", "a", "b"]] {
        let code = Some(if ["exec", "shell"].contains(&command[0]) { 125 } else { 1 });
        let said = run(server.program().args(command).env("ISOLET_API_KEY", "wrong"));
        assert_eq!(said.code, code, "{command:?}");
        assert!(said.err.contains("ISOLET_API_KEY"), "{}", said.err);
        let said = run(server.program().args(command).env("ISOLET_URL", "http://127.0.0.1:1"));
        assert_eq!((said.code, said.out.as_str()), (code, ""), "{command:?}");
        assert!(said.err.contains("isolet serve"), "{}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    }
    assert!(server.ids(&server.http()).is_empty());
}

#[test]
fn arguments_after_the_command_belong_to_it() {
    let server = Server::start();
    for (out, args) in [
        (
            "-la -s x --stdin -- --help\n",
            &["exec", "a", "echo", "-la", "-s", "x", "--stdin", "--", "--help"][..],
        ),
        ("-e\n", &["exec", "a", "--", "printf", "%s\\n", "-e"]),
        ("1 /tmp\n", &["exec", "-w", "/tmp", "a", "-e", "A=1", "--", "echo $A $PWD"]),
        ("1 /tmp\n", &["exec", "a", "--workdir=/tmp", "--env=A=1", "echo $A $PWD"]),
    ] {
        assert_eq!(isolet(&server, args).well().out, out, "{args:?}");
    }
    let listed = isolet(&server, &["exec", "a", "ls", "-la", "/"]).well().out;
    assert!(listed.contains("workspace"), "{listed}");
    assert_eq!(fed(&server, &["exec", "-i", "a", "wc", "-c"], b"four").well().out, "4\n");
}

/// Reads one line of a child's output and closes the pipe, as `| head -1` does.
fn head(mut child: Child) -> (String, Option<i32>, String) {
    let mut stdout = child.stdout.take().expect("was asked for");
    let mut line = Vec::new();
    let mut byte = [0];
    while stdout.read(&mut byte).expect("reads") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    drop(stdout);
    let output = child.wait_with_output().expect("ends");
    let text = |bytes| String::from_utf8(bytes).expect("is text");
    (text(line), output.status.code(), text(output.stderr))
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let server = Server::start();
    let endless = "while echo line; do :; done";
    for (args, input) in [
        (&["exec", "a", endless][..], ""),
        (&["exec", "a", "--session", "s", endless], ""),
        (&["shell", "a"], endless),
        (&["shell", "a", "--session", "t"], endless),
    ] {
        let mut command = server.program();
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut stdin = child.stdin.take().expect("was asked for");
        stdin.write_all(input.as_bytes()).expect("writes");
        drop(stdin);
        let heard = head(child);
        assert_eq!(heard, ("line".to_owned(), Some(141), String::new()), "{args:?}");
    }
    for session in ["s", "t"] {
        wait_until(&format!("the command of {session} is cancelled"), SOON, || {
            let info = server.http().get(&format!("/v1/sandboxes/a/sessions/{session}")).json();
            (info["busy"] == false).then_some(())
        });
    }
}

#[test]
fn a_terminated_script_leaves_nothing_behind() {
    let server = Server::start();
    let mut command = server.program();
    command.args(["shell", "a", "-s", "s"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    child.stdin.take().expect("asked for").write_all(b"echo began; sleep 1000").expect("writes");
    let mut began = [0; 6];
    child.stdout.as_mut().expect("asked for").read_exact(&mut began).expect("reads");
    run(Command::new("kill").args(["-TERM", &child.id().to_string()])).well();
    assert_eq!(child.wait().expect("ends").code(), Some(143));
    wait_until("its command is cancelled", SOON, || {
        let info = server.http().get("/v1/sandboxes/a/sessions/s").json();
        (info["busy"] == false).then_some(())
    });
}

#[test]
fn a_script_runs_completely_and_exits_with_its_code() {
    let server = Server::start();
    let script = "\
for i in 1 2
do
  echo \"turn $i\"
done
cat <<END
a 'here' document
END
read -r line || echo 'nothing to read'
echo loud >&2
f() {
  return 4
}
f";
    let said = fed(&server, &["shell", "a"], script.as_bytes());
    let all = "turn 1\nturn 2\na 'here' document\nnothing to read\n";
    assert_eq!((said.code, &*said.out, &*said.err), (Some(4), all, "loud\n"));
    let said = fed(&server, &["shell", "a"], b"exit 9\necho never\n");
    assert_eq!((said.code, &*said.out, &*said.err), (Some(9), "", ""));
    let said = fed(&server, &["shell", "a"], b"echo first\nif\n");
    assert_eq!((said.code, &*said.out), (Some(2), "first\n"));
    assert!(said.err.contains("syntax error"), "{}", said.err);
    fed(&server, &["shell", "a", "-s", "dev"], b"cd /usr\nx=5\n").well();
    assert_eq!(fed(&server, &["shell", "a", "-s", "dev"], b"echo $PWD $x").well().out, "/usr 5\n");
    assert_eq!(fed(&server, &["shell", "a"], b" \n").well().out, "");
}

#[test]
fn an_invalid_or_oversized_script_is_refused_with_the_reason() {
    let server = Server::start();
    let mut script = vec![b'#'; 1024 * 1024 - 8];
    script.extend_from_slice(b"\necho ok");
    assert_eq!(fed(&server, &["shell", "a"], &script).well().out, "ok\n");
    script.push(b'\n');
    let lines = vec![b'\n'; 1024 * 1024];
    for (script, word) in
        [(&script[..], "1 MiB"), (&lines, "JSON"), (b": \xff", "UTF-8"), (b": \0", "NUL")]
    {
        let said = fed(&server, &["shell", "b"], script);
        assert_eq!((said.code, &*said.out), (Some(125), ""), "{}", said.err);
        assert!(said.err.contains(word), "{}", said.err);
    }
}

/// Types at a terminal: each step waits until the output of the step before ends with a text.
fn typed(mut command: Command, steps: &[(&str, &str)]) -> (String, Option<i32>) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("starts");
    let mut stdin = child.stdin.take().expect("was asked for");
    let mut stdout = child.stdout.take().expect("was asked for");
    let (sender, receiver) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut part) {
            if sender.send(part[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut seen = String::new();
    for (until, keys) in steps {
        let from = seen.len();
        while !seen[from..].ends_with(until) {
            let part = receiver.recv_timeout(SOON);
            let part = part.unwrap_or_else(|_| panic!("{until:?} does not come: {seen:?}"));
            seen.push_str(&String::from_utf8_lossy(&part));
        }
        stdin.write_all(keys.as_bytes()).expect("types");
    }
    let status = wait_until("it ends", SOON, || child.try_wait().expect("its child"));
    reading.join().expect("reads");
    receiver.try_iter().for_each(|part| seen.push_str(&String::from_utf8_lossy(&part)));
    (seen, status.code())
}

/// A client command on a terminal of its own.
fn terminal(server: &Server, line: &str) -> Command {
    let program = server.program();
    let mut script = Command::new("script");
    for (name, value) in program.get_envs() {
        if let Some(value) = value {
            script.env(name, value);
        }
    }
    let line = format!("exec '{}' {line}", program.get_program().to_string_lossy());
    script
        .args(["-qec", &line, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    script
}

#[test]
fn at_a_terminal_lines_join_until_a_command_is_whole() {
    let server = Server::start();
    let mut shell = terminal(&server, "shell a");
    // Without line editing, as on a terminal that cannot move its cursor.
    shell.env("NO_COLOR", "1").env("TERM", "dumb");
    let (seen, code) = typed(
        shell,
        &[
            ("a$ ", "for i in 1 2; do\n"),
            ("> ", "echo n$i\n"),
            ("> ", "done\n"),
            ("n1\r\nn2\r\na$ ", "cat <<E\n"),
            ("> ", "one 'line\n"),
            ("> ", "E\n"),
            ("E\r\none 'line\r\na$ ", "echo began; sleep 60\n"),
            ("began\r\n", "\x03"),
            ("[exit 130]\r\na$ ", "echo \"left\n"),
            ("> ", "\x03"),
            ("a$ ", "echo 'two\n"),
            ("> ", "lines'; (exit 3)\n"),
            ("two\r\nlines\r\n[exit 3]\r\na$ ", "\x04"),
        ],
    );
    assert_eq!(code, Some(3), "{seen}");
    assert!(!seen.contains("\x1b["), "no colours: {seen:?}");
}

#[test]
fn an_unknown_sandbox_is_named_with_a_hint() {
    let server = Server::start();
    for args in [&["info", "nosuch"][..], &["logs", "nosuch"], &["rm", "nosuch"]] {
        let said = isolet(&server, args);
        assert_eq!((said.code, &*said.out), (Some(1), ""));
        assert_eq!(said.err, "isolet: no sandbox nosuch (`isolet ls` lists the sandboxes)\n");
    }
    isolet(&server, &["exec", "a", "true"]).well();
    let said = isolet(&server, &["logs", "a", "-s", "nosuch"]);
    assert!(said.code == Some(1) && said.err.contains("`isolet info a`"), "{}", said.err);
    isolet(&server, &["exec", "b", "true"]).well();
    let said = isolet(&server, &["rm", "a", "nosuch", "b"]);
    assert_eq!(said.code, Some(1));
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(server.ids(&server.http()).is_empty(), "it continued after the missing one");
}

#[test]
fn lists_are_for_people_and_for_scripts() {
    let server = Server::start();
    assert_eq!(isolet(&server, &["ls"]).well().out, "");
    isolet(&server, &["exec", "a", "true"]).well();
    let plain = isolet(&server, &["ls"]).well().out;
    let columns: Vec<_> =
        plain.lines().map(|line| line.find("STATE").or(line.find("running"))).collect();
    assert_eq!(columns, [Some(4), Some(4)], "its columns are not aligned: {plain}");
    assert!(!plain.contains('\x1b'), "{plain:?}");
    let all: isolet_kit::Value =
        isolet(&server, &["ls", "--json"]).well().out.parse().expect("is JSON");
    assert_eq!(all[0]["id"], "a");
    let decimals = all[0]["create_ms"].to_string();
    let decimals = decimals.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    assert!(decimals <= 3, "{}", all[0]["create_ms"]);
    let (seen, _) = typed(terminal(&server, "ls"), &[]);
    assert!(seen.contains("\x1b[32mrunning"), "{seen:?}");
    let mut monochrome = terminal(&server, "ls");
    monochrome.env("NO_COLOR", "1");
    assert!(!typed(monochrome, &[]).0.contains('\x1b'));
}

/// Promises: J15.
#[test]
fn every_command_teaches_by_an_example() {
    let server = Server::start();
    for command in [
        "serve",
        "doctor",
        "recover",
        "pause",
        "resume",
        "exec",
        "shell",
        "attach",
        "terminals",
        "ls",
        "rm",
        "cp",
        "sleep",
        "wake",
        "sessions",
        "stats",
        "start",
        "ps",
        "kill",
        "logs",
        "info",
        "keys",
        "keys add",
        "keys ls",
        "keys revoke",
        "keys rotate",
        "backup",
        "restore",
        "audit",
        "audit show",
        "audit verify",
        "webhooks",
    ] {
        let mut words: Vec<_> = command.split(' ').collect();
        words.push("--help");
        let help = isolet(&server, &words).well().out;
        let example = format!("\n  isolet {command}");
        assert!(help.contains(&example), "{command}: {help}");
    }
}

#[test]
fn a_first_start_says_why_it_takes_a_while() {
    let mut server = Server::start();
    server.stop();
    // The image that tests share is out of reach: this server builds its own, as a first start
    // does.
    std::fs::remove_file(server.data().join("image")).expect("is a link");
    for _ in 0..2 {
        server.launch_with("ISOLET_LOG_JSON", "0");
        wait_until("the server answers", LONG, || {
            let reply = server.client(None).try_send("GET", "/health", None).ok()?;
            (reply.status == 200).then_some(())
        });
        server.stop();
    }
    let log = server.log();
    assert_eq!(log.matches("preparing the host image, once").count(), 1, "{log}");
    assert_eq!(log.matches("the host image is prepared seconds=").count(), 1, "{log}");
}

/// Promises: SN6.
#[test]
fn a_sandbox_goes_back_to_a_snapshot_by_its_name() {
    let server = Server::start();
    let command = |text: &str| isolet(&server, &["exec", "demo", text]).well().out;
    command("echo old >/workspace/f");
    isolet(&server, &["snapshot", "create", "demo", "--name", "point"]).well();
    command("echo new >/workspace/f; sleep 1000 & disown");
    let restored = isolet(&server, &["snapshot", "restore", "demo", "point"]).well();
    assert_eq!(restored.out, "", "{restored:?}");
    assert_eq!(command("cat /workspace/f"), "old\n");
    let json = isolet(&server, &["snapshot", "restore", "demo", "point", "--json"]).well();
    assert!(json.out.contains("\"lost\""), "{json:?}");
    let none = isolet(&server, &["snapshot", "restore", "demo", "other"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("no snapshot other"), "{none:?}");
}
