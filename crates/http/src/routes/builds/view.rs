//! Builds as clients see them.

use isolet_build::{ArchiveSummary, BuildInfo, BuildState, FailedPart, LogEntry, LogLevel};
use serde::Serialize;
use utoipa::ToSchema;

/// A build of an image.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Build)]
pub(crate) struct BuildView {
    /// Its id, a UUID.
    id: String,
    /// The names that the image gets, in full.
    names: Vec<String>,
    /// `requested` (without steps yet), `waiting`, `building`, `ready` or `failed`.
    state: &'static str,
    /// The digest of the image, once it is ready.
    #[schema(required = true)]
    digest: Option<String>,
    /// Why it failed.
    #[schema(required = true)]
    reason: Option<String>,
    /// What failed: `base`, `step`, `image` or `build`.
    #[schema(required = true)]
    failed: Option<&'static str>,
    /// The step that failed, from 0.
    #[schema(required = true)]
    failed_step: Option<usize>,
    /// When it was requested, in milliseconds since 1970.
    created_at_ms: i64,
    /// When it ended, in milliseconds since 1970.
    #[schema(required = true)]
    ended_at_ms: Option<i64>,
}

impl From<BuildInfo> for BuildView {
    fn from(info: BuildInfo) -> Self {
        let state = match &info.state {
            BuildState::Requested => "requested",
            BuildState::Waiting => "waiting",
            BuildState::Building => "building",
            BuildState::Ready { .. } => "ready",
            BuildState::Failed { .. } => "failed",
        };
        let mut view = Self {
            id: info.id,
            names: info.names,
            state,
            digest: None,
            reason: None,
            failed: None,
            failed_step: None,
            created_at_ms: info.created_at_ms,
            ended_at_ms: info.ended_at_ms,
        };
        match info.state {
            BuildState::Ready { digest } => view.digest = Some(digest),
            BuildState::Failed { part, reason } => {
                view.reason = Some(reason);
                view.failed = Some(match part {
                    FailedPart::Base => "base",
                    FailedPart::Step(_) => "step",
                    FailedPart::Image => "image",
                    FailedPart::Build => "build",
                });
                if let FailedPart::Step(index) = part {
                    view.failed_step = Some(index);
                }
            }
            _ => {}
        }
        view
    }
}

/// An entry of the log of a build.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BuildLogEntry)]
pub(crate) struct LogEntryView {
    /// When it was written, in milliseconds since 1970.
    at_ms: i64,
    /// `debug`, `info` (also standard output), `warn` (also standard error) or `error`.
    level: &'static str,
    /// One line.
    message: String,
    /// The step that it belongs to, from 0.
    #[schema(required = true)]
    step: Option<usize>,
}

/// The word for a level.
pub(crate) fn level_word(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}

impl From<LogEntry> for LogEntryView {
    fn from(entry: LogEntry) -> Self {
        Self {
            at_ms: entry.at_ms,
            level: level_word(entry.level),
            message: entry.message,
            step: entry.step,
        }
    }
}

/// A part of the log of a build.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BuildLog)]
pub(crate) struct BuildLogView {
    /// The entries, the earliest first.
    pub(crate) entries: Vec<LogEntryView>,
    /// The `offset` of the entries after these.
    pub(crate) next_offset: usize,
}

/// Files that were uploaded for builds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BuildFiles)]
pub(crate) struct FilesView {
    /// Whether the server has them.
    present: bool,
    /// The digest of their names, kinds, permissions and contents.
    #[schema(required = true)]
    digest: Option<String>,
    /// The number of files, directories and links.
    entries: usize,
    /// Their unpacked size, in bytes.
    unpacked_bytes: u64,
}

impl From<Option<ArchiveSummary>> for FilesView {
    fn from(found: Option<ArchiveSummary>) -> Self {
        match found {
            None => Self { present: false, digest: None, entries: 0, unpacked_bytes: 0 },
            Some(summary) => Self {
                present: true,
                digest: Some(summary.digest),
                entries: summary.entries,
                unpacked_bytes: summary.unpacked_bytes,
            },
        }
    }
}
