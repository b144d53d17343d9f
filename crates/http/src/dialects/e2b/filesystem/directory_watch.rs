//! A watched directory, whose changes become events of E2B.

use crate::dialects::e2b::connect::RpcError;
use crate::dialects::e2b::filesystem::changes::{FilesystemEvent, Translated, lost, translate};
use crate::dialects::e2b::filesystem::entry::EntryInfo;
use isolet_sandbox::Sandbox;
use isolet_sandbox::files::Watcher;

/// A watched directory.
pub(super) struct DirectoryWatch {
    watcher: Watcher,
    sandbox: Sandbox,
    path: String,
    /// Whether events describe their file.
    include_entry: bool,
    /// Events of which some are not described yet.
    pending: Vec<FilesystemEvent>,
    /// How many of them are.
    described: usize,
}

impl DirectoryWatch {
    pub(super) fn new(
        watcher: Watcher,
        sandbox: Sandbox,
        path: String,
        include_entry: bool,
    ) -> Self {
        Self { watcher, sandbox, path, include_entry, pending: Vec::new(), described: 0 }
    }

    /// Waits for the next events; `None` when the directory is gone. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<FilesystemEvent>>, RpcError> {
        while self.pending.is_empty() {
            let Some(changes) = self.watcher.next().await? else { return Ok(None) };
            for change in &changes {
                match translate(change) {
                    Translated::Gone if self.pending.is_empty() => return Ok(None),
                    // The next call learns of it.
                    Translated::Gone => break,
                    Translated::Lost => return Err(lost()),
                    Translated::Events(events) => self.pending.extend(events),
                }
            }
        }
        while self.include_entry && self.described < self.pending.len() {
            let event = &mut self.pending[self.described];
            if event.has_file() {
                let path = format!("{}/{}", self.path.trim_end_matches('/'), event.name);
                // It may be gone already.
                event.entry = EntryInfo::read(&self.sandbox, path).await.ok();
            }
            self.described += 1;
        }
        self.described = 0;
        Ok(Some(std::mem::take(&mut self.pending)))
    }
}
