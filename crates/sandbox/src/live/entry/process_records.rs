//! Records of background processes, so that their end can be reported after a sleep or a crash: one
//! small file per process below the sandbox's directory, removed with it. While its agent lives,
//! only the agent is asked.

use crate::model::{
    blocking::blocking,
    ids::{ProcessId, SessionId},
    info::IdempotencyKey,
    network::denied::Denied,
    process::ProcessInfo,
};
use isolet_wire::process::{End, Process};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use tracing::warn;

/// Notes of one sandbox: more than its agent tells of at once. The oldest makes room.
const NOTES_MAX: usize = 512;
/// The longest note, in bytes: a bad one is not read into memory.
const NOTE_BYTES_MAX: u64 = 8192;

/// A process that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessRecord {
    pub(crate) id: ProcessId,
    pub(crate) session: Option<SessionId>,
    /// Its session has an agent of its own.
    pub(crate) scoped: bool,
    command: String,
    started_at_ms: i64,
    /// Names the agent that had it.
    pub(crate) life: String,
    /// Its idempotency key, and the body that came with it.
    once: Option<(String, [u8; 32])>,
    /// How it had ended before its sandbox fell asleep.
    end: Option<End>,
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

    /// It was started under this key.
    pub(crate) fn of(&self, key: &str) -> bool {
        self.once.as_ref().is_some_and(|(own, _)| own == key)
    }

    /// And with this body.
    pub(crate) fn same(&self, once: &IdempotencyKey) -> bool {
        self.once.as_ref().is_some_and(|(_, body)| *body == once.body)
    }

    /// As it is told of after its agent.
    pub(crate) fn lost(self) -> ProcessInfo {
        let process = Process {
            id: self.id.to_string(),
            command: self.command,
            started_at_ms: self.started_at_ms,
            end: self.end,
            ..Process::default()
        };
        let denied = Denied::default();
        ProcessInfo { id: self.id, session: self.session, process, lost: true, denied }
    }
}

type Held = Arc<Mutex<Option<BTreeMap<ProcessId, ProcessRecord>>>>;

/// Those of one sandbox.
#[derive(Debug)]
pub(crate) struct ProcessRecords {
    folder: PathBuf,
    /// As the files say; `None` until they were first read.
    held: Held,
    /// Starts under an idempotency key go one after the other.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl ProcessRecords {
    pub(crate) fn new(sandbox: &Path) -> Self {
        let folder = sandbox.join("processes");
        Self { folder, held: Held::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Does something with all of them, and with the folder, off the caller's thread.
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

    /// Keeps one. A disk that refuses it costs only what is told after a sleep.
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
            warn!(folder = %self.folder.display(), %error, "a process is not noted");
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

    /// A session's scope has ended, and what ran in it.
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

    /// These have ended, as their agent tells before it ends as well.
    pub(crate) async fn ended(&self, told: Vec<ProcessInfo>) {
        self.with(move |folder, notes| {
            for info in told {
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

/// Names the life of the agent that listens in a directory: another one has another socket.
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

/// Not on the disk when this returns: a loss of power may take what is only told of.
fn write(folder: &Path, note: &ProcessRecord) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // No process's id begins with a dot.
    let draft = folder.join(format!(".{}", note.id));
    fs::write(&draft, serde_json::to_vec(note)?)?;
    fs::rename(draft, folder.join(note.id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(id: &str, started_at_ms: i64) -> ProcessRecord {
        let process = Process { started_at_ms, ..Process::default() };
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
        ended.process.end = Some(End { code: 3, ..End::default() });
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
