//! A session, as the native API writes it.

use crate::foundation::error::ApiError;
use isolet_sandbox::SessionInfo;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    /// Its id, unique within its sandbox.
    #[schema(value_type = String)]
    id: String,
    /// Its sandbox.
    #[schema(value_type = String)]
    sandbox_id: String,
    /// Where its shell begins.
    cwd: String,
    /// Names of its own environment; values are never told.
    env_names: BTreeSet<String>,
    /// For commands that name none, in ms; 0 never.
    command_timeout_ms: u64,
    /// The client's own words.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// In ms since 1970.
    created_at_ms: i64,
    /// Last begin or end of a command, in ms since 1970.
    last_activity_ms: i64,
    /// A command or program of it is running.
    busy: bool,
    /// Its shell's process id inside, when it is open.
    shell_pid: Option<i32>,
    /// It has a terminal that runs.
    terminal: bool,
    /// Seconds to live, counted from its creation; `null` never ends by itself.
    ttl_s: Option<u64>,
    /// When its ttl is over, in ms since 1970.
    expires_at_ms: Option<i64>,
    /// What of the workspace it sees.
    file_access: FileAccess,
}

/// Paths of the workspace that a session sees, each with all below it: relative, without a leading
/// slash; `""` is all of it. Writing implies reading. The session's own `.sessions/ID` is always
/// there to be written. At most 1000 paths and 49152 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileAccess {
    /// To be read; they must be there.
    #[serde(default)]
    pub(crate) read: Vec<String>,
    /// To be read and written; made as directories where they are not there.
    #[serde(default)]
    pub(crate) write: Vec<String>,
}

impl FileAccess {
    /// The scope of a session.
    pub(crate) fn told(access: Option<isolet_sandbox::FileAccess>) -> Self {
        let isolet_sandbox::FileAccess { read, write } = access.unwrap_or_default();
        Self { read, write }
    }

    /// Checks and converts the scope.
    pub(crate) fn wish(self) -> Result<isolet_sandbox::FileAccess, ApiError> {
        let Self { read, write } = self;
        let access = isolet_sandbox::FileAccess { read, write };
        access.check()?;
        Ok(access)
    }
}

impl From<SessionInfo> for SessionView {
    fn from(info: SessionInfo) -> Self {
        let ttl_s = info.life.map(|life| life.ttl_s);
        let end = |s: u64| info.created_at_ms.saturating_add_unsigned(s.saturating_mul(1000));
        Self {
            ttl_s,
            expires_at_ms: ttl_s.map(end),
            file_access: FileAccess::told(info.file_access),
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
