//! The commands that scripts and people use on many sandboxes: lists, filters, deletion, states, statistics,
//! and completion by the shell.

use crate::programs::{ProgramOutput, run};
use isolet_kit::{Pty, Server, Value};
use std::process::Command;

fn isolet(server: &Server, args: &[&str]) -> ProgramOutput {
    run(server.program().args(args))
}

fn json(server: &Server, args: &[&str]) -> Value {
    let said = isolet(server, args).well();
    said.out.parse().unwrap_or_else(|_| panic!("{args:?} prints JSON: {}", said.out))
}

fn create(server: &Server, ids: &[&str]) {
    for id in ids {
        isolet(server, &["create", id]).well();
    }
}

#[test]
fn lists_are_filtered_and_printed_as_ids() {
    let server = Server::start();
    create(&server, &["build-1", "build-2", "web"]);
    isolet(&server, &["pause", "web"]).well();
    for (args, out) in [
        (&["ls", "-q"][..], "build-1\nbuild-2\nweb\n"),
        (&["ls", "-q", "--filter", "id=build-*"], "build-1\nbuild-2\n"),
        (&["ls", "-q", "-f", "state=paused"], "web\n"),
        (&["ls", "-q", "-f", "state=paused", "-f", "state=running", "-f", "id=*2"], "build-2\n"),
        (&["ls", "-q", "-f", "state=failed"], ""),
    ] {
        assert_eq!(isolet(&server, args).well().out, out, "{args:?}");
    }
    assert_eq!(json(&server, &["ls", "-q", "-o", "json", "-f", "id=w*"]).to_string(), r#"["web"]"#);
    assert_eq!(json(&server, &["ls", "--output=json", "-f", "id=w*"])[0]["state"], "paused");
    let wrong = isolet(&server, &["ls", "-f", "colour=red"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("metadata.NAME="), "{wrong:?}");
    let wrong = isolet(&server, &["ls", "-o", "yaml"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("json"), "{wrong:?}");
}

#[test]
fn deleting_many_asks_a_person_and_needs_yes_in_a_script() {
    let server = Server::start();
    create(&server, &["a-1", "a-2", "b"]);
    for args in [&["rm", "--all"][..], &["rm", "--filter", "id=a-*"]] {
        let refused = isolet(&server, args);
        assert_eq!(refused.code, Some(1), "{args:?}");
        assert!(
            refused.err.contains("a-1, a-2") && refused.err.contains("--yes"),
            "{}",
            refused.err
        );
    }
    let mut program = server.program();
    program.args(["rm", "--all"]);
    let mut pty = Pty::start(&program, 80, 24);
    pty.sees("[y/N] ");
    pty.type_in("n\r");
    assert_eq!(pty.ended(), 1);
    assert_eq!(server.ids(&server.http()), ["a-1", "a-2", "b"]);
    let deleted = json(&server, &["rm", "--filter", "id=a-*", "--yes", "-o", "json"]);
    assert_eq!((&deleted[0]["id"], &deleted[1]["state"]), (&"a-1".into(), &"destroyed".into()));
    let mut pty = Pty::start(&program, 80, 24);
    pty.sees("[y/N] ");
    pty.type_in("y\r");
    assert_eq!(pty.ended(), 0);
    assert!(server.ids(&server.http()).is_empty());
    assert!(isolet(&server, &["rm", "--all"]).well().err.contains("no sandbox to delete"));
}

#[test]
fn sleep_and_wake_keep_shell_state_and_name_what_ended() {
    let server = Server::start();
    isolet(&server, &["exec", "a", "--session", "s", "cd /tmp; x=5; sleep 1000 & disown"]).well();
    assert_eq!(isolet(&server, &["sleep", "a"]).well().out, "a is sleeping\n");
    assert_eq!(isolet(&server, &["stats", "--no-stream"]).well().out, "", "nothing runs");
    let woken = isolet(&server, &["wake", "a"]).well().out;
    assert!(woken.starts_with("a is running\n  lost: "), "{woken}");
    assert_eq!(isolet(&server, &["wake", "a"]).well().out, "a is running\n");
    let kept = isolet(&server, &["exec", "a", "--session", "s", "echo $PWD $x"]).well().out;
    assert_eq!(kept, "/tmp 5\n");
    for command in ["sleep", "wake"] {
        let missing = isolet(&server, &[command, "nosuch"]);
        assert!(
            missing.code == Some(1) && missing.err.contains("no sandbox nosuch"),
            "{missing:?}"
        );
    }
    assert_eq!(server.ids(&server.http()), ["a"]);
}

#[test]
fn sessions_are_listed_and_deleted() {
    let server = Server::start();
    isolet(&server, &["exec", "a", "--session", "dev", "cd /tmp"]).well();
    let table = isolet(&server, &["sessions", "a"]).well().out;
    assert!(table.starts_with("SESSION  STATE") && table.contains("\ndev "), "{table}");
    assert_eq!(json(&server, &["sessions", "a", "-o", "json"])[1]["id"], "dev");
    isolet(&server, &["sessions", "a", "--rm", "dev"]).well();
    assert_eq!(isolet(&server, &["sessions", "a", "-q"]).well().out, "default\n");
    let refused = isolet(&server, &["sessions", "a", "--rm", "default"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
}

#[test]
fn webhooks_are_added_tested_and_removed() {
    let server = Server::start();
    let url = "https://receiver.invalid/hook";
    let none = isolet(&server, &["webhooks", "ls"]).well();
    assert!(none.out.is_empty() && none.err.contains("webhooks add"), "{none:?}");
    let made = isolet(&server, &["webhooks", "add", url, "--event", "sandbox.failed"]).well();
    let lines: Vec<&str> = made.out.lines().collect();
    let [id, secret] = lines[..] else { panic!("{made:?}") };
    assert!(id.starts_with("wh_") && secret.starts_with("whsec_"), "{made:?}");
    let table = isolet(&server, &["webhooks", "ls"]).well().out;
    assert!(table.contains(id) && table.contains(" on ") && table.contains(url), "{table}");
    let tested = isolet(&server, &["webhooks", "test", id]);
    assert_eq!(tested.code, Some(1), "{tested:?}");
    assert!(
        tested.err.contains("receiver.invalid has no address that the server may connect to"),
        "{tested:?}"
    );
    isolet(&server, &["webhooks", "disable", id]).well();
    assert!(isolet(&server, &["webhooks", "ls"]).well().out.contains(" off "));
    isolet(&server, &["webhooks", "enable", id]).well();
    let rotated = isolet(&server, &["webhooks", "rotate", id]).well().out;
    assert!(rotated.contains("whsec_") && !rotated.contains(secret), "{rotated}");
    isolet(&server, &["webhooks", "rm", id]).well();
    let gone = isolet(&server, &["webhooks", "rm", id]);
    assert!(gone.code == Some(1) && gone.err.contains("no webhook"), "{gone:?}");
    assert_eq!(json(&server, &["webhooks", "ls", "-o", "json"]), isolet_kit::json!([]));
}

#[test]
fn statistics_are_a_live_table_for_people_and_json_for_scripts() {
    let server = Server::start();
    isolet(&server, &["create", "a", "--memory", "256m", "--cpu", "1cpu"]).well();
    isolet(&server, &["start", "a", "--id", "busy", "while :; do :; done"]).well();
    let stats = json(&server, &["stats", "--no-stream", "-o", "json"]);
    let one = &stats[0];
    assert_eq!((&one["id"], &one["memory_limit_bytes"]), (&"a".into(), &268_435_456_u64.into()));
    assert!(one["cpu_percent"].as_f64().is_some_and(|cpu| cpu > 1.0), "{one:?}");
    assert!(one["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{one:?}");
    assert!(one["pids"].as_u64().is_some_and(|pids| pids > 0), "{one:?}");
    let table = isolet(&server, &["stats", "--no-stream", "a"]).well().out;
    assert!(table.starts_with("ID") && table.contains("/ 256.0 MiB"), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    let mut program = server.program();
    program.args(["stats", "--interval", "250ms"]);
    let mut pty = Pty::start(&program, 120, 24);
    let first = pty.sees("256.0 MiB");
    pty.sees_after(first, "\x1b[2A");
    pty.type_in("\x03");
    pty.ended();
    let missing = isolet(&server, &["stats", "--no-stream", "nosuch"]);
    assert!(missing.code == Some(1) && missing.err.contains("no sandbox nosuch"), "{missing:?}");
}

#[test]
fn wrong_units_are_refused_with_an_example() {
    let server = Server::start();
    for (args, word) in [
        (&["create", "--memory", "lots"][..], "512m or 2g"),
        (&["create", "--cpu", "2"], "2cpu"),
        (&["create", "--ttl", "soon"], "10m"),
        (&["start", "a", "--wait", "x", "true"], "10m"),
        (&["snapshot", "create", "a", "--ttl", "1w"], "7d"),
    ] {
        let refused = isolet(&server, args);
        assert!(refused.code == Some(2) && refused.err.contains(word), "{args:?}: {}", refused.err);
    }
    let made = json(&server, &["create", "a", "--memory", "1g", "--cpu", "0.5cpu", "-o", "json"]);
    assert_eq!((&made["memory_mib"], &made["cpu_millis"]), (&1024.into(), &500.into()));
}

/// What a shell completes, given the words of a command line.
fn completed(server: &Server, words: &[&str]) -> Vec<String> {
    let mut program = server.program();
    program.arg("--").arg("isolet").args(words).envs([
        ("ISOLET_COMPLETE", "bash"),
        ("_CLAP_IFS", "\n"),
        ("_CLAP_COMPLETE_INDEX", &words.len().to_string()),
        ("_CLAP_COMPLETE_COMP_TYPE", "9"),
        ("_CLAP_COMPLETE_SPACE", "true"),
    ]);
    run(&mut program).well().out.lines().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_ids_from_the_server() {
    let server = Server::start();
    create(&server, &["demo-1", "demo-2", "other"]);
    isolet(&server, &["exec", "demo-1", "--session", "build", "true"]).well();
    isolet(&server, &["start", "demo-1", "--id", "web", "sleep 1000"]).well();
    assert_eq!(completed(&server, &["exec", "demo"]), ["demo-1", "demo-2"]);
    assert_eq!(completed(&server, &["rm", "other", "demo-1"]), ["demo-1"]);
    assert_eq!(completed(&server, &["exec", "demo-1", "--session", "b"]), ["build"]);
    assert_eq!(completed(&server, &["logs", "demo-1", "w"]), ["web"]);
    assert_eq!(completed(&server, &["cp", "oth"]), ["other:"]);
    assert!(completed(&server, &["sta"]).contains(&"stats".to_owned()));
    let commands = completed(&server, &[""]);
    assert!(!commands.iter().any(|name| name == "generate"), "{commands:?}");
    let mut without = server.program();
    without.args(["--", "isolet", "exec", "demo"]).envs([
        ("ISOLET_COMPLETE", "bash"),
        ("_CLAP_COMPLETE_INDEX", "2"),
        ("ISOLET_URL", "http://127.0.0.1:1"),
    ]);
    let silent = run(&mut without).well();
    assert_eq!((silent.out.trim(), silent.err.as_str()), ("", ""));
}

/// The script of the packages, in a real bash.
#[test]
fn bash_completes_an_id_at_the_tab_key() {
    let server = Server::start();
    create(&server, &["only-one"]);
    let program = server.program();
    let folder = tempfile::tempdir().expect("a directory in /tmp");
    let link = folder.path().join("isolet");
    std::os::unix::fs::symlink(program.get_program(), &link).expect("links");
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]);
    for (name, value) in program.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        bash.env(name, value);
    }
    let path = std::env::var("PATH").expect("is set");
    bash.env("PATH", format!("{}:{path}", folder.path().display()));
    let mut pty = Pty::start(&bash, 80, 24);
    pty.type_in("PS1='rea''dy> '\r");
    pty.sees("ready> ");
    pty.type_in("source <(isolet completions bash); echo sour''ced\r");
    let from = pty.sees("sourced");
    let from = pty.sees_after(from, "ready> ");
    pty.type_in("isolet info on\t");
    pty.sees_after(from, "only-one");
    pty.type_in("\x15exit\r");
    pty.ended();
}
