//! Describes processes that the agent does not know: they were lost with a sleep or a crash, or
//! never existed.

use crate::live::entry::process_records::{ProcessRecord, life};
use crate::model::error::Error;
use crate::model::ids::ProcessId;
use crate::model::process::ProcessInfo;
use crate::model::state::State;
use crate::sandbox::Sandbox;

impl Sandbox {
    pub(crate) async fn process_lost(&self, id: &ProcessId) -> Result<ProcessInfo, Error> {
        let note = self.entry.process_records.get(id).await;
        note.map(ProcessRecord::lost).ok_or_else(|| self.no_process(id))
    }

    /// Whether a recorded process was lost with an earlier agent instead of having been forgotten.
    pub(crate) async fn outlived(&self, note: &ProcessRecord) -> bool {
        if self.entry.state() == State::Sleeping {
            return true;
        }
        let scope = note.session.as_ref().filter(|_| note.scoped);
        let scope = scope.and_then(|session| self.entry.scopes.get(session));
        let directory = match (&scope, note.scoped) {
            (Some(scope), _) => &scope.directory,
            (None, false) => &self.entry.directory,
            (None, true) => return true,
        };
        life(directory).await != note.life
    }

    /// The error for a process that the agent does not know.
    pub(crate) async fn not_there(&self, id: &ProcessId) -> Error {
        match self.entry.process_records.get(id).await {
            Some(note) if self.outlived(&note).await => self.process_gone(id),
            Some(_) => {
                // The agent forgot it because it was the oldest of many.
                self.entry.process_records.remove(id).await;
                self.no_process(id)
            }
            None => self.no_process(id),
        }
    }

    /// The error for a process of a sleeping sandbox.
    pub(crate) async fn lost_or_none(&self, id: &ProcessId) -> Error {
        match self.entry.process_records.get(id).await {
            Some(_) => self.process_gone(id),
            None => self.no_process(id),
        }
    }

    pub(crate) fn no_process(&self, id: &ProcessId) -> Error {
        Error::NoProcess { id: self.entry.id.clone(), process: id.clone() }
    }

    pub(crate) fn process_gone(&self, id: &ProcessId) -> Error {
        Error::ProcessLost { id: self.entry.id.clone(), process: id.clone() }
    }
}
