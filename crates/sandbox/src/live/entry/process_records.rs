//! Records of background processes, so that they can be described after a sleep or a crash has
//! ended them. Each process has one small file below the sandbox's directory. While the agent
//! lives, only the agent is queried.

use crate::model::blocking::blocking;
use crate::model::ids::{ProcessId, SessionId};
use crate::model::info::IdempotencyKey;
use crate::model::network::denied::Denied;
use crate::model::process::ProcessInfo;
use isolet_wire::process::{ProcessEnd, ProcessStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::warn;

/// Maximum number of records of one sandbox, above what an agent remembers. The oldest one is
/// dropped first.
const NOTES_MAX: usize = 512;
/// Maximum size of a file, in bytes, so that a damaged one is not read into memory.
const NOTE_BYTES_MAX: u64 = 8192;

/// The record of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessRecord {
    pub(crate) id: ProcessId,
    pub(crate) session: Option<SessionId>,
    /// The process runs in a session with an agent of its own.
    pub(crate) scoped: bool,
    command: String,
    started_at_ms: i64,
    /// Identifies the run of the agent that started the process.
    pub(crate) life: String,
    /// The idempotency key of the start, and the hash of its request.
    once: Option<(String, [u8; 32])>,
    /// How the process ended, if it ended before the sandbox fell asleep.
    end: Option<ProcessEnd>,
}

impl ProcessRecord {
    pub(crate) fn new(
        info: &ProcessInfo,
        scoped: bool,
        life: String,
        once: Option<IdempotencyKey>,
    ) -> Self {
        Self {
            id: info.id.clone(),
            session: info.session.clone(),
            scoped,
            command: info.process.command.clone(),
            started_at_ms: info.process.started_at_ms,
            life,
            once: once.map(|once| (once.key, once.body)),
            end: None,
        }
    }

    /// Whether this key started the process.
    pub(crate) fn of(&self, key: &str) -> bool {
        self.once.as_ref().is_some_and(|(own, _)| own == key)
    }

    /// Whether the key was used with the same request.
    pub(crate) fn same(&self, once: &IdempotencyKey) -> bool {
        self.once.as_ref().is_some_and(|(_, body)| *body == once.body)
    }

    /// The description of the process after the end of its agent.
    pub(crate) fn lost(self) -> ProcessInfo {
        let process = ProcessStatus {
            id: self.id.to_string(),
            command: self.command,
            started_at_ms: self.started_at_ms,
            end: self.end,
            ..ProcessStatus::default()
        };
        let denied = Denied::default();
        ProcessInfo { id: self.id, session: self.session, process, lost: true, denied }
    }
}

type SharedRecords = Arc<Mutex<Option<BTreeMap<ProcessId, ProcessRecord>>>>;

/// The process records of one sandbox.
#[derive(Debug)]
pub(crate) struct ProcessRecords {
    folder: PathBuf,
    /// The contents of the files; `None` until they are read for the first time.
    held: SharedRecords,
    /// Serialises starts under an idempotency key.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl ProcessRecords {
    pub(crate) fn new(sandbox: &Path) -> Self {
        let folder = sandbox.join("processes");
        Self { folder, held: SharedRecords::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Runs a function on all records and the folder, on a blocking thread.
    async fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Path, &mut BTreeMap<ProcessId, ProcessRecord>) -> R + Send + 'static,
    ) -> Option<R> {
        let folder = self.folder.clone();
        let held = Arc::clone(&self.held);
        let done = blocking(move || {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            let notes = held.get_or_insert_with(|| read_all(&folder));
            work(&folder, notes)
        });
        done.await.ok()
    }

    pub(crate) async fn get(&self, id: &ProcessId) -> Option<ProcessRecord> {
        if let Some(notes) = &*self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            return notes.get(id).cloned();
        }
        let id = id.clone();
        self.with(move |_, notes| notes.get(&id).cloned()).await?
    }

    pub(crate) async fn all(&self) -> Vec<ProcessRecord> {
        self.with(|_, notes| notes.values().cloned().collect()).await.unwrap_or_default()
    }

    /// Stores a record. If the disk refuses it, only the description after a sleep is lost.
    pub(crate) async fn put(&self, note: ProcessRecord) {
        let written = self.with(move |folder, notes| {
            while notes.len() >= NOTES_MAX {
                let oldest = notes.values().min_by_key(|note| note.started_at_ms);
                let Some(oldest) = oldest.map(|note| note.id.clone()) else { break };
                notes.remove(&oldest);
                let _ = fs::remove_file(folder.join(oldest.as_str()));
            }
            let written = write(folder, &note);
            notes.insert(note.id.clone(), note);
            written
        });
        if let Some(Err(error)) = written.await {
            warn!(folder = %self.folder.display(), %error, "process is not recorded");
        }
    }

    pub(crate) async fn remove(&self, id: &ProcessId) {
        let id = id.clone();
        self.with(move |folder, notes| {
            notes.remove(&id);
            let _ = fs::remove_file(folder.join(id.as_str()));
        })
        .await;
    }

    /// Removes the records of a session whose scope has ended.
    pub(crate) async fn forget_scope(&self, session: &SessionId) {
        let session = session.clone();
        let gone = self.with(move |_, notes| {
            let own = notes.values().filter(|note| note.scoped);
            let own = own.filter(|note| note.session.as_ref() == Some(&session));
            own.map(|note| note.id.clone()).collect::<Vec<_>>()
        });
        for id in gone.await.unwrap_or_default() {
            self.remove(&id).await;
        }
    }

    /// Records the results that the agent reported before its own end.
    pub(crate) async fn ended(&self, processes: Vec<ProcessInfo>) {
        self.with(move |folder, notes| {
            for info in processes {
                let Some(note) = notes.get_mut(&info.id) else { continue };
                if info.process.end.is_some() && note.end != info.process.end {
                    note.end = info.process.end;
                    let _ = write(folder, note);
                }
            }
        })
        .await;
    }
}

/// Identifies the run of the agent that listens in a directory, by the inode of its socket.
pub(crate) async fn life(directory: &Path) -> String {
    let socket = directory.join("agent.sock");
    let about = blocking(move || fs::symlink_metadata(socket)).await;
    about.ok().and_then(Result::ok).map_or_else(String::new, |about| {
        format!("{}-{}-{}", about.ino(), about.ctime(), about.ctime_nsec())
    })
}

fn read_all(folder: &Path) -> BTreeMap<ProcessId, ProcessRecord> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let notes = entries.flatten().take(2 * NOTES_MAX).filter_map(|entry| {
        let mut text = Vec::new();
        fs::File::open(entry.path()).ok()?.take(NOTE_BYTES_MAX).read_to_end(&mut text).ok()?;
        let note: ProcessRecord = serde_json::from_slice(&text).ok()?;
        (entry.file_name().to_str() == Some(note.id.as_str())).then(|| (note.id.clone(), note))
    });
    notes.collect()
}

/// Writes a file without flushing it: a loss of power may lose it, and it is only informative.
fn write(folder: &Path, note: &ProcessRecord) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // The id of a process never begins with a dot.
    let draft = folder.join(format!(".{}", note.id));
    fs::write(&draft, serde_json::to_vec(note)?)?;
    fs::rename(draft, folder.join(note.id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(id: &str, started_at_ms: i64) -> ProcessRecord {
        let process = ProcessStatus { started_at_ms, ..ProcessStatus::default() };
        let id = ProcessId::parse(id).unwrap();
        let denied = Denied::default();
        let info = ProcessInfo { id, session: None, process, lost: false, denied };
        ProcessRecord::new(&info, false, "1-2-3".into(), None)
    }

    /// Promises: J10.
    #[tokio::test]
    async fn notes_are_found_again_by_the_next_server() {
        let folder = tempfile::tempdir().unwrap();
        let notes = ProcessRecords::new(folder.path());
        notes.put(note("a", 1)).await;
        notes.put(note("b", 2)).await;
        notes.remove(&ProcessId::parse("b").unwrap()).await;
        let mut ended = note("a", 1).lost();
        ended.process.end = Some(ProcessEnd { code: 3, ..ProcessEnd::default() });
        notes.ended(vec![ended.clone()]).await;
        fs::write(folder.path().join("processes/bad"), "{").unwrap();
        let found = ProcessRecords::new(folder.path()).all().await;
        assert_eq!(found.into_iter().map(ProcessRecord::lost).collect::<Vec<_>>(), [ended]);
    }

    #[tokio::test]
    async fn notes_are_bounded_and_the_oldest_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let notes = ProcessRecords::new(folder.path());
        for n in 0..NOTES_MAX + 3 {
            notes.put(note(&format!("p{n}"), n as i64)).await;
        }
        assert_eq!(notes.all().await.len(), NOTES_MAX);
        assert_eq!(notes.get(&ProcessId::parse("p2").unwrap()).await, None);
        assert!(notes.get(&ProcessId::parse("p3").unwrap()).await.is_some());
    }
}
