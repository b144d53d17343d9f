//! Saved states of the shells of a sandbox's sessions. Each session has one file with mode 0600
//! below the sandbox's directory. The state belongs to the tenant: the server does not read it and
//! only returns it to a shell of the same session.

use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum size of all states of one sandbox, in bytes.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// A state of up to this size always fits, even with the maximum number of sessions.
const SMALL_BYTES: usize = 64 * 1024;

/// The saved shell states of one sandbox.
#[derive(Debug)]
pub(crate) struct ShellStates {
    folder: PathBuf,
    /// Sessions whose next shell is opened with its saved state.
    waiting: Mutex<BTreeSet<SessionId>>,
    /// Serialises changes of the folder.
    turn: tokio::sync::Mutex<()>,
}

impl ShellStates {
    pub(crate) fn new(sandbox: &Path) -> Self {
        let folder = sandbox.join("shells");
        Self { folder, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<SessionId>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a session's state and flushes it to disk. Does nothing if the session is not
    /// `known` any more.
    ///
    /// # Errors
    /// [`Error::Fault`] if the disk refuses the state or all states together exceed the limit.
    pub(crate) async fn keep(
        &self,
        id: &SessionId,
        state: Vec<u8>,
        known: impl FnOnce() -> bool,
    ) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        if !known() {
            return Ok(());
        }
        let folder = self.folder.clone();
        let id = id.clone();
        let written = blocking(move || write(&folder, &id, &state)).await?;
        written.map_err(|error| Error::Fault(format!("cannot keep what a shell held: {error}")))
    }

    /// The state that the session's next shell must restore, until it has been taken.
    pub(crate) async fn next(&self, id: &SessionId) -> Option<Vec<u8>> {
        if !self.waiting().contains(id) {
            return None;
        }
        let _turn = self.turn.lock().await;
        let path = self.folder.join(id.as_str());
        let limit = isolet_wire::response::STATE_BYTES_MAX;
        let read = blocking(move || fs::read(path)).await;
        read.ok()?.ok().filter(|state| state.len() <= limit)
    }

    /// Marks the state as taken, because a shell of the session is open.
    pub(crate) fn taken(&self, id: &SessionId) {
        self.waiting().remove(id);
    }

    /// Deletes the state, because the session or its shell has ended.
    pub(crate) async fn forget(&self, id: &SessionId) {
        let _turn = self.turn.lock().await;
        self.waiting().remove(id);
        let path = self.folder.join(id.as_str());
        let _ = blocking(move || fs::remove_file(path)).await;
    }

    /// After reading the agent's inventory, readies the saved state of each session without a shell
    /// for its next shell.
    pub(crate) async fn await_shells(&self, open: impl Fn(&SessionId) -> bool) {
        let _turn = self.turn.lock().await;
        let folder = self.folder.clone();
        let there = blocking(move || list(&folder)).await.unwrap_or_default();
        *self.waiting() = there.into_keys().filter(|id| !open(id)).collect();
    }

    /// Time of each state, in milliseconds since 1970. Blocks.
    pub(crate) fn saved_at_ms(&self) -> BTreeMap<SessionId, i64> {
        list(&self.folder)
    }
}

fn list(folder: &Path) -> BTreeMap<SessionId, i64> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let found = entries.flatten().filter_map(|entry| {
        let id = SessionId::parse(entry.file_name().to_str()?).ok()?;
        let about = entry.metadata().ok()?;
        Some((id, about.mtime() * 1000 + about.mtime_nsec() / 1_000_000))
    });
    found.collect()
}

fn write(folder: &Path, id: &SessionId, state: &[u8]) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if state.len() > SMALL_BYTES {
        let other = |entry: &fs::DirEntry| entry.file_name() != id.as_str();
        let sizes = fs::read_dir(folder)?.flatten().filter(other);
        let held: u64 = sizes.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum();
        if held + state.len() as u64 > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    // The id of a session never begins with a dot.
    let draft = folder.join(format!(".{id}"));
    let mut open = fs::OpenOptions::new();
    let mut file = open.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(state)?;
    file.sync_data()?;
    fs::rename(draft, folder.join(id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    /// Promises: L10.
    #[tokio::test]
    async fn a_state_is_kept_for_the_next_shell_alone_and_read_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ShellStates::new(folder.path());
        kept.keep(&id("a"), b"x=1".to_vec(), || true).await.unwrap();
        kept.keep(&id("b"), b"y=1".to_vec(), || true).await.unwrap();
        kept.keep(&id("gone"), b"z=1".to_vec(), || false).await.unwrap();
        let file = fs::metadata(folder.path().join("shells/a")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        assert_eq!(kept.next(&id("a")).await, None, "its shell is open");
        kept.await_shells(|open| *open == id("b")).await;
        assert_eq!(kept.next(&id("a")).await.as_deref(), Some(&b"x=1"[..]));
        assert_eq!(kept.next(&id("b")).await, None);
        kept.taken(&id("a"));
        assert_eq!(kept.next(&id("a")).await, None);
        assert_eq!(kept.saved_at_ms().len(), 2);
        kept.forget(&id("a")).await;
        kept.await_shells(|_| false).await;
        assert_eq!(kept.next(&id("a")).await, None);
        assert_eq!(kept.saved_at_ms().into_keys().collect::<Vec<_>>(), [id("b")]);
    }

    #[tokio::test]
    async fn states_are_bounded_together() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ShellStates::new(folder.path());
        let large = BYTES_MAX / 64;
        for n in 0..64 {
            let name = id(&format!("s{n}"));
            kept.keep(&name, vec![b'x'; large as usize], || true).await.unwrap();
        }
        assert!(kept.keep(&id("more"), vec![b'x'; SMALL_BYTES + 1], || true).await.is_err());
        kept.keep(&id("small"), vec![b'x'; 10], || true).await.unwrap();
        kept.keep(&id("s1"), vec![b'x'; 1000], || true).await.unwrap();
        kept.keep(&id("more"), vec![b'x'; SMALL_BYTES + 1], || true).await.unwrap();
    }
}
