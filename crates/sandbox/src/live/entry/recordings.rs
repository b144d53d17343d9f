//! Recordings of terminals: two files each below the sandbox's directory, removed with it.
//! `ID.cast` is the recording; `ID.json` describes it, and how much of it is complete.
//!
//! Only whole events up to the noted size count. The next server cuts off what a killed server has
//! written beyond, and continues at the noted offset of the terminal's output.

use crate::model::{blocking::blocking, error::Error, ids::SessionId};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The most recordings of one sandbox.
pub(crate) const RECORDINGS_MAX: usize = 100;
/// The longest recording, in bytes.
pub(crate) const RECORDING_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The longest note about one: a bad one is not read into memory.
const ABOUT_BYTES_MAX: u64 = 4096;

/// What is known of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Its id, made by the server.
    pub id: String,
    /// Whose terminal.
    pub session: SessionId,
    /// Which run of it.
    pub terminal: String,
    /// Milliseconds since 1970.
    pub started_at_ms: i64,
    /// Likewise; `None` while it grows.
    pub ended_at_ms: Option<i64>,
    /// Bytes that are whole.
    pub size: u64,
    /// It lacks its end.
    pub cut: bool,
    /// Where the terminal's output goes on behind it.
    pub(crate) offset: u64,
    /// When its last event was, in ms from its beginning.
    pub(crate) at_ms: u64,
}

impl Recording {
    /// What is known of a recording by its note on the disk and, where a recorder held it while the
    /// notes were read, by that recorder.
    pub(crate) fn known_with(mut self, growing: Option<Self>) -> Self {
        match growing {
            // The note of an end is the recorder's last word: it is newer than what the recorder held.
            Some(growing) if self.ended_at_ms.is_none() => growing,
            // Its server was killed, and its terminal has ended since.
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

/// One that grows.
#[derive(Debug)]
pub(crate) struct Growing {
    pub(crate) about: Arc<Mutex<Recording>>,
    stop: watch::Sender<bool>,
    /// Its other end is the recorder's, and goes with it.
    ended: watch::Receiver<()>,
}

/// What a recorder holds of one that grows.
pub(crate) struct Held {
    pub(crate) about: Arc<Mutex<Recording>>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) _ended: watch::Sender<()>,
}

/// Those of one sandbox.
#[derive(Debug)]
pub(crate) struct Recordings {
    pub(crate) folder: PathBuf,
    growing: Mutex<BTreeMap<SessionId, Growing>>,
    /// Begins and ends go one after the other.
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

    /// The one of a session that grows.
    pub(crate) fn of(&self, session: &SessionId) -> Option<Recording> {
        self.growing().get(session).map(|growing| read(&growing.about))
    }

    /// The ids and states of all that grow.
    pub(crate) fn all_growing(&self) -> BTreeMap<String, Recording> {
        let growing = self.growing();
        let all = growing.values().map(|growing| read(&growing.about));
        all.map(|about| (about.id.clone(), about)).collect()
    }

    pub(crate) fn begin(&self, about: Recording) -> Held {
        let (stop, stopped) = watch::channel(false);
        let (ending, ended) = watch::channel(());
        let session = about.session.clone();
        let about = Arc::new(Mutex::new(about));
        let held = Held { about: Arc::clone(&about), stop: stopped, _ended: ending };
        self.growing().insert(session, Growing { about, stop, ended });
        held
    }

    /// It does not grow any more; said by its recorder.
    pub(crate) fn over(&self, about: &Recording) {
        let mut growing = self.growing();
        if growing.get(&about.session).is_some_and(|own| read(&own.about).id == about.id) {
            growing.remove(&about.session);
        }
    }

    /// Ends the one that a session's terminal has, and waits for its last byte.
    /// Ends the recording of a session's terminal; `false`: none grew.
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

/// A file of a recording.
pub(crate) fn file(folder: &Path, id: &str, kind: &str) -> PathBuf {
    folder.join(format!("{id}.{kind}"))
}

fn list(folder: &Path) -> io::Result<Vec<Recording>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|kind| kind == "json")
            && let Ok(about) = note(&path)
        {
            all.push(about);
        }
    }
    all.sort_by(|a, b| (a.started_at_ms, &a.id).cmp(&(b.started_at_ms, &b.id)));
    Ok(all)
}

/// What a note says. One that was left growing ended when it was last written.
pub(crate) fn note(path: &Path) -> io::Result<Recording> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(ABOUT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Writes the note of a recording in place of the one before. Blocks.
pub(crate) fn write_note(folder: &Path, about: &Recording) -> io::Result<()> {
    let draft = folder.join(format!(".{}", about.id));
    fs::write(&draft, serde_json::to_vec(about)?)?;
    fs::rename(draft, file(folder, &about.id, "json"))
}

/// Makes the file of a new recording, with its first line. Blocks.
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

/// Opens the file of one that is to go on, without what is not noted. Blocks.
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

    /// A recording ended while the list was read: its note was read before, its recorder looked for
    /// after. It was listed as cut, with the size of an earlier note.
    /// Promises: F46.
    #[test]
    fn a_recording_that_ends_while_it_is_listed_is_not_cut() {
        let growing = note(1_079, None);
        assert_eq!(note(1_079, None).known_with(Some(growing.clone())), growing);
        let ended = note(1_146, Some(2_000));
        assert_eq!(ended.clone().known_with(Some(growing)), ended);
        assert_eq!(ended.clone().known_with(None), ended);
    }

    #[test]
    fn a_recording_that_no_recorder_holds_lacks_its_end() {
        let left = note(1_079, None).known_with(None);
        assert_eq!((left.ended_at_ms, left.cut, left.size), (Some(1_500), true, 1_079));
    }
}
