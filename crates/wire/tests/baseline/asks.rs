//! One value for each kind of message that a server sends to an agent.

use crate::{Row, context};
use isolet_wire::activity::ShellKey;
use isolet_wire::process::{ProcessRequest, StartProcess};
use isolet_wire::request::{
    AgentRequest, AttachShell, ByteRange, FileRequest, Invocation, OpenShell, PathPair, RunCommand,
    SearchQuery, ShellPosition, StartExec, WalkOptions, WriteOptions,
};
use isolet_wire::terminal;
use std::collections::BTreeMap;

pub(crate) fn env() -> BTreeMap<String, String> {
    [("HOME", "/root"), ("PATH", "/usr/bin:/bin")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn path(path: &str) -> Vec<u8> {
    path.as_bytes().to_vec()
}

pub(crate) fn rows() -> Vec<Row<AgentRequest>> {
    let mut rows = connection();
    rows.extend(shells());
    rows.extend(files().into_iter().map(|(name, file)| (name, AgentRequest::File(file))));
    rows.extend(processes().into_iter().map(|(name, order)| (name, AgentRequest::Process(order))));
    rows.extend(context::asks().into_iter().map(|(name, ask)| (name, AgentRequest::Context(ask))));
    rows
}

fn connection() -> Vec<Row<AgentRequest>> {
    let attach = terminal::AttachTerminal {
        terminal: ShellKey::Terminal(text("dev")),
        open: Some(terminal::OpenTerminal {
            argv: vec![text("vim")],
            cwd: text("/workspace"),
            env: env(),
        }),
        size: Some(terminal::Size { cols: 120, rows: 40 }),
        since: Some(terminal::TerminalPosition { id: text("abcdefghijklmnop"), offset: 70_000 }),
        view: true,
        events: true,
        client: text("browser"),
        hidden: false,
    };
    vec![
        ("hello", AgentRequest::Hello { version: 3 }),
        ("ping", AgentRequest::Ping(300)),
        ("watch", AgentRequest::Watch),
        ("save", AgentRequest::SaveStates),
        ("kept", AgentRequest::StateStored { shell: ShellKey::Session(text("dev")), number: 9 }),
        ("terminal", AgentRequest::Terminal(attach)),
        ("type", AgentRequest::Type(b"ls\r".to_vec())),
        ("resize", AgentRequest::Resize(terminal::Size { cols: 80, rows: 24 })),
        ("terminals", AgentRequest::Terminals),
        ("dial", AgentRequest::Dial { port: 8080 }),
        ("listening", AgentRequest::Listening),
    ]
}

fn shells() -> Vec<Row<AgentRequest>> {
    let open = OpenShell {
        cwd: text("/workspace"),
        env: env(),
        linger_ms: Some(60_000),
        save: true,
        restore: Some(b"declare -- x=1\n".to_vec()),
        replaces_lost: true,
    };
    let attach = AttachShell {
        shell: ShellKey::Session(text("dev")),
        open: Some(open),
        owner: text("abc"),
        watch: true,
        since: Some(ShellPosition { out: 1, err: 2, seq: 3 }),
    };
    let least = AttachShell {
        shell: ShellKey::Private(text("x")),
        open: None,
        since: None,
        watch: false,
        ..attach.clone()
    };
    let run = RunCommand {
        id: text("c1"),
        text: text("echo hello"),
        timeout_ms: 1000,
        cwd: Some(text("/tmp")),
        env: [(text("A"), Some(text("b"))), (text("C"), None)].into(),
        stdin: true,
        merge: false,
    };
    let exec = StartExec {
        program: Invocation::Argv(vec![text("ls"), text("-l")]),
        cwd: text("/workspace"),
        env: env(),
        stdin: false,
        timeout_ms: 0,
        uid: 1000,
    };
    let line =
        StartExec { program: Invocation::Command(text("ls | wc -l")), stdin: true, ..exec.clone() };
    vec![
        ("attach", AgentRequest::Attach(attach)),
        ("attach_least", AgentRequest::Attach(least)),
        ("run", AgentRequest::Run(run)),
        ("run_least", AgentRequest::Run(RunCommand::default())),
        ("stdin", AgentRequest::Stdin { id: text("c1"), data: vec![0, 255], eof: true }),
        ("signal", AgentRequest::Signal { id: text("c1"), signal: 15 }),
        ("cancel", AgentRequest::Cancel { id: text("c1") }),
        ("close", AgentRequest::Close { key: ShellKey::Session(text("dev")) }),
        ("exec_argv", AgentRequest::Exec(exec)),
        ("exec_command", AgentRequest::Exec(line)),
    ]
}

fn files() -> Vec<Row<FileRequest>> {
    let search = SearchQuery {
        pattern: text("need.e"),
        literal: false,
        ignore_case: true,
        hidden: false,
        ignored: true,
        glob: Some(path("*.rs")),
        context: 2,
        max: 1000,
    };
    let walk = WalkOptions {
        recursive: true,
        hidden: false,
        glob: Some(path("*.rs")),
        after: Some(path("a/b")),
        max: 1000,
    };
    let pair = PathPair { from: path("/workspace/a"), to: path("/workspace/b"), replace: true };
    let save = WriteOptions { mode: Some(0o640), append: false, sync: true };
    let from = ByteRange::From { offset: 7, limit: None };
    vec![
        ("file_read", FileRequest::Read { path: path("a"), offset: 5, limit: Some(9) }),
        ("file_write", FileRequest::Write { path: path("a"), mode: 0o644 }),
        ("file_end", FileRequest::End),
        ("file_list", FileRequest::List { path: path("/workspace"), max: 100 }),
        ("file_stat", FileRequest::Stat { path: path("a") }),
        ("file_make_dir", FileRequest::MakeDir { path: path("a/b") }),
        ("file_remove", FileRequest::Remove { path: path("a"), recursive: true }),
        ("file_fetch_from", FileRequest::Fetch { path: path("a"), span: from }),
        ("file_fetch_last", FileRequest::Fetch { path: path("a"), span: ByteRange::Last(4096) }),
        ("file_save", FileRequest::Save { path: path("a"), options: save }),
        (
            "file_save_least",
            FileRequest::Save { path: path("a"), options: WriteOptions::default() },
        ),
        ("file_walk", FileRequest::Walk { path: path("/workspace"), options: walk }),
        ("file_look", FileRequest::Metadata { path: path("a"), follow: true }),
        ("file_move", FileRequest::Move(pair.clone())),
        ("file_copy", FileRequest::Copy(pair)),
        ("file_chmod", FileRequest::Chmod { path: path("a"), mode: 0o755 }),
        ("file_pack", FileRequest::Pack { path: path("/workspace") }),
        ("file_unpack", FileRequest::Unpack { path: path("/workspace") }),
        ("file_search", FileRequest::Search { path: path("/workspace"), query: search }),
        ("file_watch", FileRequest::Watch { path: path("/workspace"), recursive: true }),
        ("file_pack_zstd", FileRequest::PackZstd { path: path("/workspace") }),
        (
            "file_pack_but",
            FileRequest::PackWithout { path: path("/workspace"), without: vec![path("a")] },
        ),
    ]
}

fn processes() -> Vec<Row<ProcessRequest>> {
    let id = || text("web");
    let start = StartProcess {
        id: id(),
        session: Some(text("dev")),
        program: Invocation::Command(text("exec server")),
        cwd: text("/workspace"),
        env: env(),
        stdin: true,
        timeout_ms: 5000,
    };
    vec![
        ("process_start", ProcessRequest::Start(start)),
        ("process_list", ProcessRequest::List),
        ("process_get", ProcessRequest::Get(id())),
        ("process_follow", ProcessRequest::Follow { id: id(), since: Some(10), follow: true }),
        ("process_input", ProcessRequest::Input { id: id(), data: b"x\n".to_vec(), eof: false }),
        ("process_signal", ProcessRequest::Signal { id: id(), signal: 1, all: true }),
        ("process_kill", ProcessRequest::Kill { id: id(), signal: 15, grace_ms: 5000 }),
        ("process_forget", ProcessRequest::Forget(id())),
    ]
}
