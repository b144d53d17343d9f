//! Recordings of terminals. Each recording has two files below the sandbox's directory: `ID.cast`
//! is the recording, and `ID.json` describes it and its complete size.
//!
//! Only the events up to the described size count. After a server was killed, the next recorder
//! removes the rest of the file and continues at the described offset of the terminal's output.

use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum number of recordings of one sandbox.
pub(crate) const RECORDINGS_MAX: usize = 100;
/// Maximum size of a recording, in bytes.
pub(crate) const RECORDING_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum size of a description, in bytes, so that a damaged one is not read into memory.
const ABOUT_BYTES_MAX: u64 = 4096;

/// The description of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The id, which the server generates.
    pub id: String,
    /// The session whose terminal is recorded.
    pub session: SessionId,
    /// The id of the recorded run of the terminal.
    pub terminal: String,
    /// Start time, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// End time, in milliseconds since 1970; `None` while the recording is in progress.
    pub ended_at_ms: Option<i64>,
    /// Size of the complete events, in bytes.
    pub size: u64,
    /// The recording does not contain the end of the output.
    pub cut: bool,
    /// Offset in the terminal's output at which the recording continues.
    pub(crate) offset: u64,
    /// Time of the last event since the start, in ms.
    pub(crate) at_ms: u64,
}

impl Recording {
    /// Combines the description on disk with the one of a recorder that was active while the file
    /// was read.
    pub(crate) fn known_with(mut self, growing: Option<Self>) -> Self {
        match growing {
            // The description of an ended recording is newer than the recorder's.
            Some(growing) if self.ended_at_ms.is_none() => growing,
            // The server was killed, and the terminal has ended since.
            None if self.ended_at_ms.is_none() => {
                let last = i64::try_from(self.at_ms).unwrap_or(0);
                self.ended_at_ms = Some(self.started_at_ms + last);
                self.cut = true;
                self
            }
            Some(_) | None => self,
        }
    }
}

/// A recording in progress.
#[derive(Debug)]
pub(crate) struct Growing {
    pub(crate) about: Arc<Mutex<Recording>>,
    stop: watch::Sender<bool>,
    /// The recorder owns the sender, which closes with it.
    ended: watch::Receiver<()>,
}

/// A recorder's hold on its recording.
pub(crate) struct RecordingSlot {
    pub(crate) about: Arc<Mutex<Recording>>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) _ended: watch::Sender<()>,
}

/// The recordings of one sandbox.
#[derive(Debug)]
pub(crate) struct Recordings {
    pub(crate) folder: PathBuf,
    growing: Mutex<BTreeMap<SessionId, Growing>>,
    /// Serialises starts and ends.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Recordings {
    pub(crate) fn new(sandbox: &Path) -> Self {
        let folder = sandbox.join("recordings");
        Self { folder, growing: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    fn growing(&self) -> MutexGuard<'_, BTreeMap<SessionId, Growing>> {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recording in progress of a session's terminal.
    pub(crate) fn of(&self, session: &SessionId) -> Option<Recording> {
        self.growing().get(session).map(|growing| read(&growing.about))
    }

    /// All recordings in progress, by id.
    pub(crate) fn all_growing(&self) -> BTreeMap<String, Recording> {
        let growing = self.growing();
        let all = growing.values().map(|growing| read(&growing.about));
        all.map(|about| (about.id.clone(), about)).collect()
    }

    pub(crate) fn begin(&self, about: Recording) -> RecordingSlot {
        let (stop, stopped) = watch::channel(false);
        let (ending, ended) = watch::channel(());
        let session = about.session.clone();
        let about = Arc::new(Mutex::new(about));
        let held = RecordingSlot { about: Arc::clone(&about), stop: stopped, _ended: ending };
        self.growing().insert(session, Growing { about, stop, ended });
        held
    }

    /// Called by the recorder at the end of its recording.
    pub(crate) fn over(&self, about: &Recording) {
        let mut growing = self.growing();
        if growing.get(&about.session).is_some_and(|own| read(&own.about).id == about.id) {
            growing.remove(&about.session);
        }
    }

    /// Ends the recording of a session's terminal and waits for its last byte. Returns `false` if
    /// there was none.
    pub(crate) async fn stop(&self, session: &SessionId) -> bool {
        let ended = self.growing().get(session).map(|growing| {
            let _ = growing.stop.send(true);
            growing.ended.clone()
        });
        let Some(mut ended) = ended else { return false };
        while ended.changed().await.is_ok() {}
        true
    }

    pub(crate) async fn files(&self) -> Result<Vec<Recording>, Error> {
        let folder = self.folder.clone();
        let found = blocking(move || list(&folder)).await?;
        Ok(found.unwrap_or_default())
    }
}

pub(crate) fn read(about: &Mutex<Recording>) -> Recording {
    about.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Path of a recording's file.
pub(crate) fn file(folder: &Path, id: &str, kind: &str) -> PathBuf {
    folder.join(format!("{id}.{kind}"))
}

fn list(folder: &Path) -> io::Result<Vec<Recording>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|kind| kind == "json")
            && let Ok(about) = note(&path)
            // The id becomes a path again, and the file may come from a forged backup.
            && path.file_stem() == Some(OsStr::new(&about.id))
        {
            all.push(about);
        }
    }
    all.sort_by(|a, b| (a.started_at_ms, &a.id).cmp(&(b.started_at_ms, &b.id)));
    Ok(all)
}

/// Reads a description. A recording without an end ended when its description was last written.
pub(crate) fn note(path: &Path) -> io::Result<Recording> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(ABOUT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Replaces a description. Blocks.
pub(crate) fn write_note(folder: &Path, about: &Recording) -> io::Result<()> {
    let draft = folder.join(format!(".{}", about.id));
    fs::write(&draft, serde_json::to_vec(about)?)?;
    fs::rename(draft, file(folder, &about.id, "json"))
}

/// Creates the file of a new recording with its first line. Blocks.
pub(crate) fn make(folder: &Path, about: &Recording, head: &[u8]) -> io::Result<fs::File> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut open = fs::OpenOptions::new();
    let path = file(folder, &about.id, "cast");
    let mut cast = open.append(true).create_new(true).mode(0o600).open(path)?;
    io::Write::write_all(&mut cast, head)?;
    write_note(folder, about)?;
    Ok(cast)
}

/// Opens the file of a recording to continue it, without the events beyond the described size.
/// Blocks.
pub(crate) fn reopen(folder: &Path, about: &Recording) -> io::Result<fs::File> {
    let cast = fs::OpenOptions::new().append(true).open(file(folder, &about.id, "cast"))?;
    cast.set_len(about.size)?;
    Ok(cast)
}

pub(crate) fn disk(error: &io::Error) -> Error {
    Error::Fault(format!("cannot keep a recording: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(size: u64, ended_at_ms: Option<i64>) -> Recording {
        Recording {
            id: "r".into(),
            session: SessionId::default_session(),
            terminal: "t".into(),
            started_at_ms: 1_000,
            ended_at_ms,
            size,
            cut: false,
            offset: 0,
            at_ms: 500,
        }
    }

    /// A recording ended while the list was being read: its description was read before the end and
    /// its recorder was looked up afterwards. The list showed it as cut, with the size of an older
    /// description.
    /// Promises: F46.
    #[test]
    fn a_recording_that_ends_while_it_is_listed_is_not_cut() {
        let growing = note(1_079, None);
        assert_eq!(note(1_079, None).known_with(Some(growing.clone())), growing);
        let ended = note(1_146, Some(2_000));
        assert_eq!(ended.clone().known_with(Some(growing)), ended);
        assert_eq!(ended.clone().known_with(None), ended);
    }

    /// Promises: F51.
    #[test]
    fn a_description_with_the_id_of_another_file_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        for id in ["r", "../../../etc/victim", "/etc/victim", "other"] {
            let text = serde_json::to_vec(&Recording { id: id.into(), ..note(1, None) }).unwrap();
            let name = if id == "r" { "r" } else { "forged" };
            fs::write(folder.path().join(format!("{name}.json")), text).unwrap();
            let listed: Vec<String> =
                list(folder.path()).unwrap().into_iter().map(|one| one.id).collect();
            assert_eq!(listed, ["r"], "{id}");
        }
    }

    #[test]
    fn a_recording_that_no_recorder_holds_lacks_its_end() {
        let left = note(1_079, None).known_with(None);
        assert_eq!((left.ended_at_ms, left.cut, left.size), (Some(1_500), true, 1_079));
    }
}
