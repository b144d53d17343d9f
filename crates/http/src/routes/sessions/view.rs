//! A session, as the native API writes it.

use crate::foundation::error::ApiError;
use isolet_sandbox::SessionInfo;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// A session of a sandbox.
// More than 12 fields: one for each member of the JSON object.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionView {
    /// The id, unique in its sandbox.
    #[schema(value_type = String)]
    id: String,
    /// The id of its sandbox.
    #[schema(value_type = String)]
    sandbox_id: String,
    /// Where its shell starts.
    cwd: String,
    /// The names of its own environment variables. Values are never returned.
    env_names: BTreeSet<String>,
    /// The timeout of commands that name none, in milliseconds. 0 means none.
    command_timeout_ms: u64,
    /// Data of the client, returned unchanged.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// When it was created, in milliseconds since 1970.
    created_at_ms: i64,
    /// When a command last started or ended, in milliseconds since 1970.
    last_activity_ms: i64,
    /// Whether a command or program of the session is running.
    busy: bool,
    /// The process id of its shell inside the sandbox. `null` while no shell is open.
    #[schema(required = true)]
    shell_pid: Option<i32>,
    /// Whether it has a running terminal.
    terminal: bool,
    /// The lifetime in seconds, counted from the creation. `null` means no limit.
    #[schema(required = true)]
    ttl_s: Option<u64>,
    /// When the lifetime ends, in milliseconds since 1970.
    #[schema(required = true)]
    expires_at_ms: Option<i64>,
    /// The part of the workspace that the session sees.
    file_access: FileAccessView,
}

/// The part of the workspace that a session sees: paths relative to `/workspace`, each with
/// everything below it. `""` stands for the whole workspace. The session can always write to its
/// own directory `.sessions/ID`. At most 1000 paths and 48 KiB.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileAccess {
    /// Paths that can be read. They must exist.
    #[serde(default)]
    read: Vec<String>,
    /// Paths that can be read and written. Missing ones are created as directories.
    #[serde(default)]
    write: Vec<String>,
}

impl FileAccess {
    /// Checks and converts the scope.
    pub(crate) fn wish(self) -> Result<isolet_sandbox::FileAccess, ApiError> {
        let Self { read, write } = self;
        let access = isolet_sandbox::FileAccess { read, write };
        access.check()?;
        Ok(access)
    }
}

/// The part of the workspace that a session sees, as paths relative to `/workspace`. `""` stands for
/// the whole workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SessionFileAccess)]
pub(crate) struct FileAccessView {
    /// Paths that can be read.
    pub(crate) read: Vec<String>,
    /// Paths that can be read and written.
    pub(crate) write: Vec<String>,
}

impl From<Option<isolet_sandbox::FileAccess>> for FileAccessView {
    fn from(access: Option<isolet_sandbox::FileAccess>) -> Self {
        let isolet_sandbox::FileAccess { read, write } = access.unwrap_or_default();
        Self { read, write }
    }
}

impl From<SessionInfo> for SessionView {
    fn from(info: SessionInfo) -> Self {
        let ttl_s = info.life.map(|life| life.ttl_s);
        let end = |s: u64| info.created_at_ms.saturating_add_unsigned(s.saturating_mul(1000));
        Self {
            ttl_s,
            expires_at_ms: ttl_s.map(end),
            file_access: info.file_access.into(),
            id: info.id.into(),
            sandbox_id: info.sandbox_id.into(),
            cwd: info.cwd,
            env_names: info.env_names,
            command_timeout_ms: info.command_timeout_ms,
            metadata: info.metadata,
            created_at_ms: info.created_at_ms,
            last_activity_ms: info.last_activity_ms,
            busy: info.busy,
            shell_pid: info.shell_pid,
            terminal: info.terminal,
        }
    }
}
