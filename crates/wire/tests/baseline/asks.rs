//! One value for each kind of message that a server sends to an agent.

use crate::{Row, context};
use isolet_wire::activity::ShellKey;
use isolet_wire::process::{ProcessRequest, Start};
use isolet_wire::request::{
    AgentRequest, Attach, Exec, File, Open, Pair, Run, Save, Search, Since, Span, Walk, What,
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
    let attach = terminal::Attach {
        terminal: ShellKey::Terminal(text("dev")),
        open: Some(terminal::Open { argv: vec![text("vim")], cwd: text("/workspace"), env: env() }),
        size: Some(terminal::Size { cols: 120, rows: 40 }),
        since: Some(terminal::Since { id: text("abcdefghijklmnop"), offset: 70_000 }),
        view: true,
        events: true,
        client: text("browser"),
        hidden: false,
    };
    vec![
        ("hello", AgentRequest::Hello { version: 3 }),
        ("ping", AgentRequest::Ping(300)),
        ("watch", AgentRequest::Watch),
        ("save", AgentRequest::Save),
        ("kept", AgentRequest::Kept { shell: ShellKey::Session(text("dev")), number: 9 }),
        ("terminal", AgentRequest::Terminal(attach)),
        ("type", AgentRequest::Type(b"ls\r".to_vec())),
        ("resize", AgentRequest::Resize(terminal::Size { cols: 80, rows: 24 })),
        ("terminals", AgentRequest::Terminals),
        ("dial", AgentRequest::Dial { port: 8080 }),
        ("listening", AgentRequest::Listening),
    ]
}

fn shells() -> Vec<Row<AgentRequest>> {
    let open = Open {
        cwd: text("/workspace"),
        env: env(),
        linger_ms: Some(60_000),
        save: true,
        restore: Some(b"declare -- x=1\n".to_vec()),
        again: true,
    };
    let attach = Attach {
        shell: ShellKey::Session(text("dev")),
        open: Some(open),
        owner: text("abc"),
        watch: true,
        since: Some(Since { out: 1, err: 2, seq: 3 }),
    };
    let least = Attach {
        shell: ShellKey::Private(text("x")),
        open: None,
        since: None,
        watch: false,
        ..attach.clone()
    };
    let run = Run {
        id: text("c1"),
        text: text("echo hello"),
        timeout_ms: 1000,
        cwd: Some(text("/tmp")),
        env: [(text("A"), Some(text("b"))), (text("C"), None)].into(),
        stdin: true,
        merge: false,
    };
    let exec = Exec {
        what: What::Argv(vec![text("ls"), text("-l")]),
        cwd: text("/workspace"),
        env: env(),
        stdin: false,
        timeout_ms: 0,
        uid: 1000,
    };
    let line = Exec { what: What::Command(text("ls | wc -l")), stdin: true, ..exec.clone() };
    vec![
        ("attach", AgentRequest::Attach(attach)),
        ("attach_least", AgentRequest::Attach(least)),
        ("run", AgentRequest::Run(run)),
        ("run_least", AgentRequest::Run(Run::default())),
        ("stdin", AgentRequest::Stdin { id: text("c1"), data: vec![0, 255], eof: true }),
        ("signal", AgentRequest::Signal { id: text("c1"), signal: 15 }),
        ("cancel", AgentRequest::Cancel { id: text("c1") }),
        ("close", AgentRequest::Close { key: ShellKey::Session(text("dev")) }),
        ("exec_argv", AgentRequest::Exec(exec)),
        ("exec_command", AgentRequest::Exec(line)),
    ]
}

fn files() -> Vec<Row<File>> {
    let search = Search {
        pattern: text("need.e"),
        literal: false,
        ignore_case: true,
        hidden: false,
        ignored: true,
        glob: Some(path("*.rs")),
        context: 2,
        max: 1000,
    };
    let walk = Walk {
        recursive: true,
        hidden: false,
        glob: Some(path("*.rs")),
        after: Some(path("a/b")),
        max: 1000,
    };
    let pair = Pair { from: path("/workspace/a"), to: path("/workspace/b"), replace: true };
    let save = Save { mode: Some(0o640), append: false, sync: true };
    let from = Span::From { offset: 7, limit: None };
    vec![
        ("file_read", File::Read { path: path("a"), offset: 5, limit: Some(9) }),
        ("file_write", File::Write { path: path("a"), mode: 0o644 }),
        ("file_end", File::End),
        ("file_list", File::List { path: path("/workspace"), max: 100 }),
        ("file_stat", File::Stat { path: path("a") }),
        ("file_make_dir", File::MakeDir { path: path("a/b") }),
        ("file_remove", File::Remove { path: path("a"), recursive: true }),
        ("file_fetch_from", File::Fetch { path: path("a"), span: from }),
        ("file_fetch_last", File::Fetch { path: path("a"), span: Span::Last(4096) }),
        ("file_save", File::Save { path: path("a"), how: save }),
        ("file_save_least", File::Save { path: path("a"), how: Save::default() }),
        ("file_walk", File::Walk { path: path("/workspace"), wish: walk }),
        ("file_look", File::Look { path: path("a"), follow: true }),
        ("file_move", File::Move(pair.clone())),
        ("file_copy", File::Copy(pair)),
        ("file_chmod", File::Chmod { path: path("a"), mode: 0o755 }),
        ("file_pack", File::Pack { path: path("/workspace") }),
        ("file_unpack", File::Unpack { path: path("/workspace") }),
        ("file_search", File::Search { path: path("/workspace"), wish: search }),
        ("file_watch", File::Watch { path: path("/workspace"), recursive: true }),
        ("file_pack_zstd", File::PackZstd { path: path("/workspace") }),
        ("file_pack_but", File::PackBut { path: path("/workspace"), without: vec![path("a")] }),
    ]
}

fn processes() -> Vec<Row<ProcessRequest>> {
    let id = || text("web");
    let start = Start {
        id: id(),
        session: Some(text("dev")),
        what: What::Command(text("exec server")),
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
