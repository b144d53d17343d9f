//! One value for each kind of message that an agent sends to a server.

use crate::{Row, context};
use isolet_wire::activity::{Activity, CloseCause, ShellKey};
use isolet_wire::port::Listener;
use isolet_wire::process::{self, ProcessLogStart, ProcessStatus};
use isolet_wire::request::ShellPosition;
use isolet_wire::response::{
    AgentResponse, Closed, CommandExit, DirectoryEntry, FileChange, FileChangeKind, FileKind,
    FileStat, FoundFile, RefusalReason, SaveFailure, SavedState, SearchLine, SearchSummary,
};
use isolet_wire::terminal::{Attached, Size, Snapshot, TerminalClientInfo, TerminalStatus};

fn text(text: &str) -> String {
    text.to_owned()
}

fn path(path: &str) -> Vec<u8> {
    path.as_bytes().to_vec()
}

pub(crate) fn rows() -> Vec<Row<AgentResponse>> {
    let mut rows = shells();
    rows.extend(exits());
    rows.extend(saved());
    rows.extend(files());
    rows.extend(changes());
    rows.extend(terminals());
    rows.extend(processes());
    rows.extend(refusals());
    rows.extend(
        context::tells().into_iter().map(|(name, tell)| (name, AgentResponse::Context(tell))),
    );
    rows
}

fn closed() -> Closed {
    Closed { code: Some(7), signal: None, cause: CloseCause::Exit }
}

fn shells() -> Vec<Row<AgentResponse>> {
    let shell = Activity::Shell {
        key: ShellKey::Session(text("dev")),
        pid: 12,
        busy: true,
        queued: 1,
        clients: 2,
        closed: Some(closed()),
    };
    let at = ShellPosition { out: 70_000, err: 2, seq: 3 };
    let listeners = vec![
        Listener { port: 80, address: "127.0.0.1".parse().expect("an address") },
        Listener { port: 8080, address: "::".parse().expect("an address") },
    ];
    vec![
        ("hello", AgentResponse::Hello { version: 3 }),
        ("pong", AgentResponse::Pong(300)),
        ("census", AgentResponse::Inventory { activities: vec![shell.clone()], execs: 3 }),
        ("changed", AgentResponse::Changed { activity: Some(shell), execs: 0 }),
        ("attached", AgentResponse::Attached { pid: 12, fresh: true, at }),
        ("started", AgentResponse::Started { id: text("c1") }),
        (
            "began",
            AgentResponse::CommandStarted { id: text("abc/c1"), command: text("echo hello") },
        ),
        ("gap", AgentResponse::Gap { stream: 1, from: 0, to: 1 << 20 }),
        (
            "closed",
            AgentResponse::Closed(Closed {
                code: None,
                signal: Some(9),
                cause: CloseCause::Killed,
            }),
        ),
        ("done", AgentResponse::Done),
        ("dialed", AgentResponse::Dialed),
        ("listening", AgentResponse::Listening(listeners)),
    ]
}

fn exits() -> Vec<Row<AgentResponse>> {
    let exit = CommandExit {
        id: text("c1"),
        code: 137,
        signal: Some(9),
        timed_out: true,
        cancelled: false,
        oom: true,
        fresh: true,
        out: 1 << 40,
        err: 5,
        lost: 6,
        micros: 1_500_000,
        seq: 8,
    };
    vec![
        ("exit", AgentResponse::Exit(exit)),
        ("exit_least", AgentResponse::Exit(CommandExit::default())),
    ]
}

fn saved() -> Vec<Row<AgentResponse>> {
    let of = |update| AgentResponse::ShellState { shell: ShellKey::Session(text("dev")), update };
    vec![
        ("saved_part", of(SavedState::Part(b"declare -- x=1\n".to_vec()))),
        ("saved_whole", of(SavedState::Complete { number: 9 })),
        ("saved_not_too_large", of(SavedState::Failed(SaveFailure::TooLarge))),
        ("saved_not_no_answer", of(SavedState::Failed(SaveFailure::NoAnswer))),
        ("saved_gone", of(SavedState::Gone)),
        ("saved_unrestored", of(SavedState::NotRestored)),
    ]
}

fn stat(kind: FileKind) -> FileStat {
    FileStat { kind, size: 812, mode: 0o644, modified_ms: 1_795_284_881_780, inode: 4_711 }
}

fn files() -> Vec<Row<AgentResponse>> {
    let entry = |name: &str, kind| DirectoryEntry { name: path(name), stat: stat(kind) };
    let found = |target| FoundFile { path: path("a/b"), stat: stat(FileKind::Symlink), target };
    let line = SearchLine {
        path: path("src/main.rs"),
        number: 12,
        text: path("let needle = 1;"),
        cut: false,
        spans: vec![(4, 10)],
        context: false,
    };
    let searched = SearchSummary { files: 40, binary: 2, unread: 1, more: true };
    vec![
        ("file_stat_file", AgentResponse::FileStat(stat(FileKind::File))),
        ("file_stat_directory", AgentResponse::FileStat(stat(FileKind::Directory))),
        ("file_stat_symlink", AgentResponse::FileStat(stat(FileKind::Symlink))),
        ("file_stat_other", AgentResponse::FileStat(stat(FileKind::Other))),
        (
            "file_list",
            AgentResponse::FileList(vec![
                entry("a", FileKind::File),
                entry("b", FileKind::Directory),
            ]),
        ),
        ("file_found", AgentResponse::FileFound(vec![found(Some(path("../c"))), found(None)])),
        ("file_saved", AgentResponse::FileSaved { stat: stat(FileKind::File), created: true }),
        ("file_lines", AgentResponse::FileLines(vec![line])),
        ("file_searched", AgentResponse::FileSearched(searched)),
        ("file_watched", AgentResponse::FileWatched { directories: 3 }),
        (
            "file_unread",
            AgentResponse::FileUnread { path: path("secret"), reason: RefusalReason::Denied },
        ),
    ]
}

fn changes() -> Vec<Row<AgentResponse>> {
    let change = |kind, to: Option<&str>| {
        let change = FileChange { kind, path: path("a"), to: to.map(path), directory: false };
        AgentResponse::FileChanged(vec![change])
    };
    vec![
        ("file_created", change(FileChangeKind::Created, None)),
        ("file_modified", change(FileChangeKind::Modified, None)),
        ("file_moved", change(FileChangeKind::Moved, Some("b"))),
        ("file_deleted", change(FileChangeKind::Deleted, None)),
        ("file_overflow", change(FileChangeKind::Overflow, None)),
        ("file_unwatched", change(FileChangeKind::Unwatched, None)),
        ("file_gone", change(FileChangeKind::Gone, None)),
    ]
}

fn terminals() -> Vec<Row<AgentResponse>> {
    let size = Size { cols: 120, rows: 40 };
    let snapshot = Snapshot { bytes: 4000, offset: 70_000, missed: 9 };
    let client = TerminalClientInfo {
        number: 1,
        name: text("browser"),
        view: false,
        size: Some(size),
        typing: true,
    };
    let attached = Attached {
        id: text("abcdefghijklmnop"),
        number: 1,
        pid: 33,
        fresh: true,
        size,
        offset: 70_000,
        snapshot: Some(snapshot),
    };
    let running = TerminalStatus {
        name: ShellKey::Terminal(text("dev")),
        id: text("abcdefghijklmnop"),
        pid: 33,
        argv: vec![text("vim"), text("a")],
        size,
        offset: 70_000,
        title: text("a - VIM"),
        clients: vec![client.clone()],
        age_ms: 12_345,
    };
    vec![
        ("terminal_attached", AgentResponse::TerminalAttached(attached)),
        ("terminal_ready", AgentResponse::TerminalReady),
        ("terminal_snapshot", AgentResponse::TerminalSnapshot(snapshot)),
        ("terminal_size", AgentResponse::TerminalSize(size)),
        ("terminal_clients", AgentResponse::TerminalClients(vec![client])),
        ("terminal_exit", AgentResponse::TerminalExit(closed())),
        ("terminals", AgentResponse::Terminals(vec![running])),
    ]
}

fn processes() -> Vec<Row<AgentResponse>> {
    let end = process::ProcessEnd {
        code: 137,
        signal: Some(9),
        timed_out: false,
        killed: true,
        oom: false,
        at_ms: 1_795_284_881_999,
        micros: 219_000,
    };
    let process = ProcessStatus {
        id: text("web"),
        session: Some(text("dev")),
        pid: 42,
        command: text("exec server"),
        started_at_ms: 1_795_284_881_780,
        end: Some(end),
        remains: true,
        stdin: true,
        out: 10,
        err: 20,
        held: 3,
    };
    let log = ProcessLogStart { process: process.clone(), position: 3 };
    vec![
        ("process", AgentResponse::Process(process.clone())),
        ("process_least", AgentResponse::Process(ProcessStatus::default())),
        ("processes", AgentResponse::Processes(vec![process])),
        ("process_log", AgentResponse::ProcessLog(log)),
        ("process_gap", AgentResponse::ProcessGap { from: 1, to: 2 }),
    ]
}

fn refusals() -> Vec<Row<AgentResponse>> {
    let of = |reason| AgentResponse::Refused { id: Some(text("c1")), reason, message: text("no") };
    let nameless = AgentResponse::Refused {
        id: None,
        reason: RefusalReason::BadRequest,
        message: String::new(),
    };
    vec![
        ("refused_nameless", nameless),
        ("refused_bad_ask", of(RefusalReason::BadRequest)),
        ("refused_no_shell", of(RefusalReason::NoShell)),
        ("refused_queue_full", of(RefusalReason::QueueFull)),
        ("refused_id_in_use", of(RefusalReason::IdInUse)),
        ("refused_too_many", of(RefusalReason::TooMany)),
        ("refused_bad_cwd", of(RefusalReason::BadCwd)),
        ("refused_not_found", of(RefusalReason::NotFound)),
        ("refused_denied", of(RefusalReason::Denied)),
        ("refused_no_process", of(RefusalReason::NoProcess)),
        ("refused_wrong_kind", of(RefusalReason::WrongKind)),
        ("refused_too_large", of(RefusalReason::TooLarge)),
        ("refused_no_space", of(RefusalReason::NoSpace)),
        ("refused_failed", of(RefusalReason::Failed)),
        ("refused_exists", of(RefusalReason::Exists)),
        ("refused_not_empty", of(RefusalReason::NotEmpty)),
        ("refused_not_listening", of(RefusalReason::NotListening)),
        ("refused_no_answer", of(RefusalReason::NoAnswer)),
        ("refused_short", of(RefusalReason::ResourcesExhausted)),
        ("refused_no_such_process", of(RefusalReason::NoSuchProcess)),
        ("refused_ended", of(RefusalReason::Ended)),
        ("refused_unable", of(RefusalReason::Unsupported)),
    ]
}
