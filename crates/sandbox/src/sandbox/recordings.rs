//! Starts, lists, reads and deletes recordings of terminals.

pub use crate::live::entry::recordings::Recording;
use crate::live::entry::recordings::{RECORDINGS_MAX, disk, file, make, reopen};
use crate::model::blocking::blocking;
use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::ids::{self, SessionId};
use crate::sandbox::{Sandbox, recorder};
use bytes::Bytes;
use std::fs;
use std::io::Read;
/// Size of one read, in bytes.
const PIECE_BYTES: u64 = 64 * 1024;

/// A recording that is being read, up to its complete size when it was opened.
#[derive(Debug)]
pub struct Playing {
    /// The description of the recording.
    pub about: Recording,
    file: Option<fs::File>,
    left: u64,
}

impl Playing {
    /// Reads the next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Fault`] if the disk cannot be read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(mut file) = self.file.take().filter(|_| self.left > 0) else { return Ok(None) };
        let most = self.left.min(PIECE_BYTES);
        let piece = blocking(move || {
            let mut piece = Vec::new();
            (&mut file).take(most).read_to_end(&mut piece).map(|_| (piece, file))
        });
        let (piece, file) = piece.await?.map_err(|error| disk(&error))?;
        if piece.is_empty() {
            return Err(Error::Fault("a recording is shorter than its description says".into()));
        }
        (self.left, self.file) = (self.left - piece.len() as u64, Some(file));
        Ok(Some(piece.into()))
    }
}

impl Sandbox {
    /// All recordings, the oldest first.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub async fn recordings(&self) -> Result<Vec<Recording>, Error> {
        let recordings = &self.entry.recordings;
        // Read before and after the descriptions, because a recording may start or end in between.
        let before = recordings.all_growing();
        let notes = recordings.files().await?;
        let after = recordings.all_growing();
        let all = notes.into_iter().map(|note| {
            let growing = after.get(&note.id).or_else(|| before.get(&note.id)).cloned();
            note.known_with(growing)
        });
        Ok(all.collect())
    }

    async fn find_recording(&self, id: &str) -> Result<Recording, Error> {
        let found = self.recordings().await?.into_iter().find(|about| about.id == id);
        let none = || Error::NoRecording { id: self.entry.id.clone(), recording: id.to_owned() };
        found.ok_or_else(none)
    }

    /// Opens a recording, which may still be in progress.
    ///
    /// # Errors
    /// [`Error::NoRecording`], [`Error::Fault`].
    pub async fn recording(&self, id: &str) -> Result<Playing, Error> {
        let about = self.find_recording(id).await?;
        let path = file(&self.entry.recordings.folder, &about.id, "cast");
        let file = blocking(move || fs::File::open(path)).await?.map_err(|error| disk(&error))?;
        Ok(Playing { left: about.size, about, file: Some(file) })
    }

    /// Deletes a recording after ending it.
    ///
    /// # Errors
    /// [`Error::NoRecording`], [`Error::Fault`].
    pub async fn recording_delete(&self, id: &str) -> Result<(), Error> {
        let recordings = &self.entry.recordings;
        let _turn = recordings.turn.lock().await;
        let about = self.find_recording(id).await?;
        if recordings.of(&about.session).is_some_and(|growing| growing.id == about.id) {
            recordings.stop(&about.session).await;
        }
        let folder = recordings.folder.clone();
        let removed = blocking(move || {
            // The description is removed first, because a recording without one is not listed.
            fs::remove_file(file(&folder, &about.id, "json"))?;
            fs::remove_file(file(&folder, &about.id, "cast"))
        });
        removed.await?.map_err(|error| disk(&error))
    }

    /// Records a session's terminal, from its current screen until it ends. Returns `true` if this
    /// call started the recording. A terminal has at most one.
    ///
    /// # Errors
    /// [`Error::Refused`] if no terminal runs, [`Error::TooManyRecordings`], [`Error::NoSpace`].
    pub async fn terminal_record(&self, session: &SessionId) -> Result<(Recording, bool), Error> {
        let own = self.clone();
        let session = session.clone();
        // Runs as a task of its own, so that a caller that disconnects leaves nothing unfinished.
        let work = async move {
            let recordings = &own.entry.recordings;
            let _turn = recordings.turn.lock().await;
            let link = own.attach_recorder(&session, None).await?;
            let attached = link.attached().clone();
            if let Some(growing) = recordings.of(&session) {
                if growing.terminal == attached.id {
                    return Ok((growing, false));
                }
                recordings.stop(&session).await;
            }
            own.space().check()?;
            if recordings.files().await?.len() >= RECORDINGS_MAX {
                return Err(Error::TooManyRecordings { max: RECORDINGS_MAX });
            }
            let head = recorder::head(attached.size, now_ms());
            let about = Recording {
                id: ids::random(),
                session,
                terminal: attached.id,
                started_at_ms: now_ms(),
                ended_at_ms: None,
                size: head.len() as u64,
                cut: false,
                offset: attached.offset,
                at_ms: 0,
            };
            let folder = recordings.folder.clone();
            let noted = about.clone();
            let cast = blocking(move || make(&folder, &noted, &head)).await?;
            let held = recordings.begin(about.clone());
            own.run_recorder(link, cast.map_err(|error| disk(&error))?, held);
            Ok((about, true))
        };
        tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))?
    }

    /// Ends the recording of a session's terminal. Returns `false` if there was none.
    pub async fn terminal_record_stop(&self, session: &SessionId) -> bool {
        let _turn = self.entry.recordings.turn.lock().await;
        self.entry.recordings.stop(session).await
    }

    /// Continues the recordings of the previous server whose terminals still run.
    pub(crate) async fn resume_recordings(&self) {
        let recordings = &self.entry.recordings;
        let _turn = recordings.turn.lock().await;
        for about in recordings.files().await.unwrap_or_default() {
            if about.ended_at_ms.is_some() || recordings.of(&about.session).is_some() {
                continue;
            }
            let Ok(link) = self.attach_recorder(&about.session, Some(&about)).await else {
                continue;
            };
            if link.attached().id != about.terminal {
                continue;
            }
            let folder = recordings.folder.clone();
            let noted = about.clone();
            if let Ok(Ok(cast)) = blocking(move || reopen(&folder, &noted)).await {
                self.run_recorder(link, cast, recordings.begin(about));
            }
        }
    }
}
