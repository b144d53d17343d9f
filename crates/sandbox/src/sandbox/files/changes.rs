//! Finds out which files of a directory changed since an earlier answer.
//!
//! Every call reads the fingerprints of all files and compares them with the last ones. A journal
//! that inotify feeds would save the reading, but would miss changes without a sign of it: the
//! kernel reports no write through a memory mapping, and none through a hard link elsewhere.

use crate::agent_client::wire::AgentEvent;
use crate::live::entry::file_journals::journal::{ChangedFile, Delta, Version};
use crate::live::entry::file_journals::{Journal, JournalKey, Reading};
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::sandbox::Sandbox;
use crate::sandbox::files::{fault, next_event};
use isolet_wire::request::{FINGERPRINTS_MAX, FileRequest};
use isolet_wire::response::{AgentResponse, FileFingerprint, RefusalReason};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum size of the paths of all files of one directory, in bytes.
const PATHS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long the reading of a directory may take, and how long a call waits for others of the tenant.
const READING_WAIT: Duration = Duration::from_secs(60);

/// Whether a client wants to know of changes of a path.
pub type Admits = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Which changes to find.
#[derive(Debug, Clone)]
pub struct ChangeQuery {
    /// The absolute path of the directory.
    pub path: Vec<u8>,
    /// Also directories below it.
    pub recursive: bool,
    /// The version after which changes count; `None` to begin.
    pub since: Option<Version>,
    /// Maximum number of changed paths in the answer.
    pub limit: usize,
}

/// The files that changed.
#[derive(Debug)]
pub struct FileChanges {
    /// At most one for each path, sorted by path.
    pub changes: Vec<ChangedFile>,
    /// The version behind these changes.
    pub version: Version,
    /// More changes are known.
    pub more: bool,
}

impl From<Delta> for FileChanges {
    fn from(Delta { changes, version, more }: Delta) -> Self {
        Self { changes, version, more }
    }
}

impl Sandbox {
    /// The files that changed since a version, as far as `admits` accepts their paths below the
    /// directory. Without a version, only the current one.
    ///
    /// # Errors
    /// [`Error::VersionExpired`]; see `file_walk`, and `TooLarge` if there are too many files.
    pub async fn file_changes(
        &self,
        query: ChangeQuery,
        admits: Admits,
    ) -> Result<FileChanges, Error> {
        let ChangeQuery { path, recursive, since, limit } = query;
        let scope = self.scope.as_ref().map(Arc::downgrade);
        let key = JournalKey { scope, path: path.clone(), recursive };
        let journals = &self.entry.file_journals;
        let Some(version) = since else {
            let found = journals.find(&key);
            let _turn = match &found {
                Some(journal) => Some(in_time(journal.turn.lock()).await?),
                None => None,
            };
            let _reading = self.reading_turn().await?;
            let files = self.fingerprints(&path, recursive).await?;
            // Only now, so that a directory that cannot be read displaces no journal. If two calls
            // begin at once, some changes may be reported twice.
            let journal = journals.open(key, &self.entry.tenant);
            let updated = Arc::clone(&journal);
            let version = blocking(move || updated.update(files, true)).await?;
            self.inner.journal_memory.make_room(&journal);
            let version =
                version.ok_or_else(|| Error::Fault("a journal without a reading".to_owned()))?;
            return Ok(FileChanges { changes: Vec::new(), version, more: false });
        };
        let expired = || Error::VersionExpired(version.to_string());
        let journal = journals.find(&key).ok_or_else(expired)?;
        let _turn = in_time(journal.turn.lock()).await?;
        let look = |journal: &Arc<Journal>| {
            let journal = Arc::clone(journal);
            let admits = Arc::clone(&admits);
            blocking(move || journal.since(version, limit, &*admits))
        };
        let known = look(&journal).await?.ok_or_else(expired)?;
        if known.more {
            return Ok(known.into());
        }
        let _reading = self.reading_turn().await?;
        let files = self.fingerprints(&path, recursive).await?;
        let updated = Arc::clone(&journal);
        blocking(move || updated.update(files, false)).await?.ok_or_else(expired)?;
        self.inner.journal_memory.make_room(&journal);
        Ok(look(&journal).await?.ok_or_else(expired)?.into())
    }

    /// Waits until the tenant may read another directory.
    async fn reading_turn(&self) -> Result<Reading, Error> {
        let reading = in_time(self.inner.journal_memory.reading(&self.entry.tenant)).await?;
        reading.map_err(|error| Error::Fault(error.to_string()))
    }

    async fn fingerprints(
        &self,
        path: &[u8],
        recursive: bool,
    ) -> Result<Vec<FileFingerprint>, Error> {
        timeout(READING_WAIT, self.read_fingerprints(path, recursive)).await.unwrap_or_else(|_| {
            let message = "its files were not read within 60 s; ask for a directory below it";
            Err(Error::Refused { reason: RefusalReason::TooLarge, message: message.to_owned() })
        })
    }

    async fn read_fingerprints(
        &self,
        path: &[u8],
        recursive: bool,
    ) -> Result<Vec<FileFingerprint>, Error> {
        let call = FileRequest::Fingerprints { path: path.to_vec(), recursive };
        let mut wire = self.file(path, call).await?;
        let mut all = Vec::new();
        let mut bytes = 0;
        loop {
            match next_event(&mut wire).await? {
                AgentEvent::Response(AgentResponse::FileFingerprints(mut part))
                    if !part.is_empty() && all.len() + part.len() <= FINGERPRINTS_MAX =>
                {
                    bytes += part.iter().map(|one| one.path.len()).sum::<usize>();
                    if bytes > PATHS_BYTES_MAX {
                        let message = "the paths have more than 16 MiB together; ask for a directory below it";
                        let reason = RefusalReason::TooLarge;
                        return Err(Error::Refused { reason, message: message.to_owned() });
                    }
                    all.append(&mut part);
                }
                AgentEvent::Response(AgentResponse::Done) => return Ok(all),
                _ => return Err(fault("a reading of fingerprints")),
            }
        }
    }
}

/// Waits for calls of the same tenant.
async fn in_time<T>(wait: impl Future<Output = T>) -> Result<T, Error> {
    timeout(READING_WAIT, wait).await.map_err(|_| {
        let message = "too many directories are being read for this tenant; send the request again";
        Error::Refused { reason: RefusalReason::TooMany, message: message.to_owned() }
    })
}
