//! Simulates power failures: writes that were not synced may be on the disk completely, partly or not at
//! all, in any order. Every acknowledged change must survive.
//!
//! A separate process changes records under `strace`, and notes each acknowledged change. From its writes
//! and syncs, the test builds the disks that a power failure could have left.
#![allow(missing_docs)]

mod disk;
mod trace;

use disk::{Chance, Disk};
use isolet_store::{SandboxRow, SessionRow, Store, StoredAnswer};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use trace::TraceEvent;

/// The variable that names the directory of the process under `strace`.
const FOLDER: &str = "ISOLET_STORE_POWER";
/// Number of changes: enough for two checkpoints of the write-ahead log.
const CHANGES: usize = 180;

/// State and body length of each sandbox, and ids of sessions.
type Records = (BTreeMap<String, (String, usize)>, BTreeSet<String>);

fn name(n: usize) -> String {
    format!("s{n}")
}

/// A body of a size that depends on `n`, from one page to a chain of pages.
fn body(n: usize) -> String {
    "x".repeat(200 + n * 7919 % 30_000)
}

/// Makes the change `n`, which is deterministic.
async fn change(store: &Store, n: usize) {
    let sandbox = SandboxRow {
        name: name(n),
        tenant: "t".into(),
        id: name(n),
        slot: u32::try_from(n).expect("small"),
        state: "creating".into(),
        body: body(n),
    };
    let answer =
        StoredAnswer { tenant: "t".into(), key: name(n), body: [7; 32], answer: "{}".into() };
    let session =
        SessionRow { sandbox: name(n.saturating_sub(1)), id: "s".into(), body: "{}".into() };
    match n % 5 {
        1 => store.update(&name(n - 1), "running", body(n), Some(answer)).await,
        2 => store.insert_session(SessionRow { sandbox: name(n - 2), ..session }, None).await,
        4 if n.is_multiple_of(2) => store.remove(&name(n - 4)).await,
        4 => store.remove_session(&name(n - 4), "s").await,
        _ => store.insert(sandbox).await,
    }
    .expect("it is recorded");
}

/// The expected records after the first `count` changes.
fn records(count: usize) -> Records {
    let (mut sandboxes, mut sessions) = Records::default();
    for n in 0..count {
        match n % 5 {
            1 => drop(sandboxes.insert(name(n - 1), ("running".into(), body(n).len()))),
            2 => drop(sessions.insert(name(n - 2))),
            4 if n.is_multiple_of(2) => {
                sandboxes.remove(&name(n - 4));
                sessions.remove(&name(n - 4));
            }
            4 => drop(sessions.remove(&name(n - 4))),
            _ => drop(sandboxes.insert(name(n), ("creating".into(), body(n).len()))),
        }
    }
    (sandboxes, sessions)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

/// The process under `strace`. It ends abruptly, without closing the store.
#[test]
#[ignore = "started by the test below"]
fn changes() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut answered = std::fs::File::create(folder.join("answered")).expect("a file");
    let store = Store::open(&folder.join("isolet.db")).expect("a store");
    runtime().block_on(async {
        for n in 0..CHANGES {
            change(&store, n).await;
            answered.write_all(b".").expect("writes");
        }
    });
    // Does not return, because closing the store would write a checkpoint.
    let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
}

fn traced(folder: &Path) -> Vec<TraceEvent> {
    let log = folder.join("trace");
    let calls =
        "trace=write,writev,pwrite64,pwritev,ftruncate,fallocate,fsync,fdatasync,unlink,rename";
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-xx", "-s", "99999999", "-e", calls, "-o"]).arg(&log);
    strace.arg(std::env::current_exe().expect("this test"));
    strace.args(["--exact", "changes", "--ignored", "--nocapture"]);
    let done = strace.env(FOLDER, folder).output().expect("strace runs");
    let events = trace::read(&log, folder);
    let count = events.iter().filter(|event| matches!(event, TraceEvent::Answered)).count();
    assert_eq!(count, CHANGES, "{}", String::from_utf8_lossy(&done.stderr));
    events
}

/// Opens the records in a directory and reads them.
fn found(folder: &Path) -> Records {
    let raw = rusqlite::Connection::open(folder.join("isolet.db")).expect("it opens");
    let whole: String =
        raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("reads");
    assert_eq!(whole, "ok");
    drop(raw);
    let store = Store::open(&folder.join("isolet.db")).expect("a store");
    runtime().block_on(async {
        let (sandboxes, bad) = store.sandboxes().await.expect("reads");
        assert!(bad.is_empty(), "{bad:?}");
        let sandboxes = sandboxes.into_iter().map(|s| (s.name, (s.state, s.body.len())));
        let sessions = store.sessions().await.expect("reads").0;
        (sandboxes.collect(), sessions.into_iter().map(|s| s.sandbox).collect())
    })
}

/// Promises: F15.
#[test]
fn heavy_f15_no_loss_of_power_takes_what_was_answered() {
    let folder = tempfile::tempdir().expect("a directory");
    let events = traced(folder.path());
    let mut disk = Disk::default();
    let mut answered = 0;
    let mut tried = 0;
    let mut copies = 0;
    for (at, event) in events.iter().enumerate() {
        // Before each sync and acknowledgement, and at some moments between them.
        let moment = matches!(event, TraceEvent::Sync(_) | TraceEvent::Answered) || at % 41 == 0;
        let kinds = if disk.certain() { 1 } else { Chance::ALL.len() };
        for &chance in Chance::ALL.iter().take(kinds).filter(|_| moment) {
            let left = tempfile::tempdir().expect("a directory");
            disk.write(left.path(), chance, at);
            let found = found(left.path());
            let context = format!("after {answered} answers, at call {at}, {chance:?}");
            let may = [records(answered), records((answered + 1).min(CHANGES))];
            assert!(may.contains(&found), "{context}: {found:?}, should be {:?}", may[0]);
            tried += 1;
        }
        match event {
            TraceEvent::Answered => answered += 1,
            TraceEvent::Sync(file) if file == "isolet.db" => copies += 1,
            _ => {}
        }
        disk.take(event);
    }
    assert!(copies >= 2, "the log was copied into the file {copies} times");
    assert!(tried > 800, "{tried} moments");
}
