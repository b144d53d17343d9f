//! One build: its state, its log, and those who follow it.

use crate::build_log::{BuildLog, LogEntry, LogLevel};
use crate::error::Error;
use crate::records::{BuildInfo, BuildRecord, BuildState, FailedPart};
use isolet_sandbox::{SandboxId, TenantId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tracing::warn;

/// Maximum number of entries of a running build that are returned at once.
const ENTRIES_MAX: usize = 100;

/// One build.
pub(super) struct Build {
    pub(super) tenant: TenantId,
    pub(super) id: String,
    pub(super) names: Vec<String>,
    pub(super) created_at_ms: i64,
    pub(super) log: BuildLog,
    pub(super) state: watch::Sender<Progress>,
    pub(super) cancel: Notify,
}

/// What changes of a build.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) state: BuildState,
    pub(super) ended_at_ms: Option<i64>,
    pub(super) sandbox: Option<SandboxId>,
}

impl Build {
    pub(super) fn new(tenant: TenantId, info: BuildInfo) -> Self {
        // That of a build which has ended is in its record.
        let log = if info.state.has_ended() { BuildLog::stored() } else { BuildLog::default() };
        let progress = Progress { state: info.state, ended_at_ms: info.ended_at_ms, sandbox: None };
        Self {
            tenant,
            id: info.id,
            names: info.names,
            created_at_ms: info.created_at_ms,
            log,
            state: watch::Sender::new(progress),
            cancel: Notify::new(),
        }
    }

    pub(super) fn info(&self) -> BuildInfo {
        let progress = self.state.borrow();
        BuildInfo {
            id: self.id.clone(),
            names: self.names.clone(),
            created_at_ms: self.created_at_ms,
            ended_at_ms: progress.ended_at_ms,
            state: progress.state.clone(),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.borrow().state.has_ended()
    }

    pub(super) fn record(&self) -> BuildRecord {
        let sandbox = self.state.borrow().sandbox.clone();
        let log = if self.has_ended() { self.log.all() } else { Vec::new() };
        BuildRecord::new(self.info(), sandbox, log)
    }

    /// Entries of the log, from the record on the disk if the build has ended.
    pub(super) async fn entries(
        &self,
        root: &Path,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<LogEntry>, Error> {
        if let Some(entries) = self.log.read(offset, limit) {
            return Ok(entries);
        }
        let root = root.to_owned();
        let tenant = self.tenant.clone();
        let id = self.id.clone();
        let read = move || BuildRecord::read_log(&root, &tenant, &id);
        let read = tokio::task::spawn_blocking(read).await;
        let all = read.map_err(|error| Error::Disk(error.to_string()))??;
        Ok(all.into_iter().skip(offset).take(limit).collect())
    }

    /// Moves a build whose steps are not known to another state. Returns `false` if it has started or
    /// ended before.
    pub(super) fn leave_requested(&self, to: BuildState) -> bool {
        self.state.send_if_modified(|progress| {
            if progress.state != BuildState::Requested {
                return false;
            }
            if let BuildState::Failed { reason, .. } = &to {
                // Those who follow it read the log before they look at the state.
                self.log.put(LogLevel::Error, None, reason.as_str());
                progress.ended_at_ms = Some(isolet_clock::now_ms());
            }
            progress.state = to;
            true
        })
    }

    /// The same to the end of a build that never started.
    pub(super) fn withdraw(&self, reason: &str) -> bool {
        let reason = reason.to_owned();
        self.leave_requested(BuildState::Failed { part: FailedPart::Build, reason })
    }
}

/// Follows a build.
pub struct BuildWatch {
    pub(super) build: Arc<Build>,
    pub(super) offset: usize,
    /// The directory of all builds.
    pub(super) root: PathBuf,
}

impl BuildWatch {
    /// Waits for more entries of the log; none when the build has ended and all were returned.
    pub async fn next(&mut self) -> Vec<LogEntry> {
        let mut count = self.build.log.count();
        let mut state = self.build.state.subscribe();
        loop {
            let ended = state.borrow_and_update().state.has_ended();
            // From the disk all at once, so that it is read once.
            let limit = if ended { usize::MAX } else { ENTRIES_MAX };
            let entries = self.build.entries(&self.root, self.offset, limit).await;
            let entries = entries.unwrap_or_else(|error| {
                warn!(build = self.build.id, %error, "cannot read the log of a build");
                Vec::new()
            });
            if !entries.is_empty() || ended {
                self.offset += entries.len();
                return entries;
            }
            tokio::select! {
                _ = count.changed() => {}
                _ = state.changed() => {}
            }
        }
    }

    /// The build as it is now.
    #[must_use]
    pub fn info(&self) -> BuildInfo {
        self.build.info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(state: BuildState) -> Build {
        let info = BuildInfo {
            id: "b".to_owned(),
            names: vec!["a:1".to_owned()],
            created_at_ms: 1,
            ended_at_ms: None,
            state,
        };
        Build::new(TenantId::parse("one").unwrap(), info)
    }

    /// A build that was cancelled while it was started once ran on, and became ready.
    #[test]
    fn a_build_is_started_or_withdrawn_but_not_both() {
        let started = build(BuildState::Requested);
        assert!(started.leave_requested(BuildState::Waiting));
        assert!(!started.withdraw("cancelled"));
        assert_eq!(started.info().state, BuildState::Waiting);
        assert!(started.log.all().is_empty());
        let withdrawn = build(BuildState::Requested);
        assert!(withdrawn.withdraw("cancelled"));
        assert!(!withdrawn.leave_requested(BuildState::Waiting));
        assert!(withdrawn.has_ended() && withdrawn.info().ended_at_ms.is_some());
        assert_eq!(withdrawn.log.all()[0].message, "cancelled");
    }

    #[tokio::test]
    async fn the_log_of_an_ended_build_is_read_from_the_disk() {
        let home = tempfile::tempdir().unwrap();
        let build = Arc::new(build(BuildState::Requested));
        for number in 0..3 {
            build.log.put(LogLevel::Info, None, format!("line {number}"));
        }
        build.withdraw("cancelled");
        build.record().write(home.path(), &build.tenant).unwrap();
        build.log.forget();
        assert!(build.log.all().is_empty());
        let read = build.entries(home.path(), 1, 2).await.unwrap();
        let read: Vec<&str> = read.iter().map(|entry| entry.message.as_str()).collect();
        assert_eq!(read, ["line 1", "line 2"]);
        let root = home.path().to_owned();
        let mut watch = BuildWatch { build, offset: 0, root };
        assert_eq!(watch.next().await.len(), 4);
        assert!(watch.next().await.is_empty());
    }
}
