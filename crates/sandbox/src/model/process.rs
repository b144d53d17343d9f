//! Background processes, as clients request and see them.

use crate::model::{
    ids::{ProcessId, SessionId},
    network::denied::Denied,
};
use isolet_wire::{
    process::{COMMAND_BYTES_TOLD, Process},
    request::What,
};
use std::collections::BTreeMap;

/// A process to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessSpec {
    /// Its id; one is made unless told.
    pub id: Option<ProcessId>,
    /// What to run.
    pub what: What,
    /// Start directory; the sandbox's, or the session's own, unless told.
    pub cwd: Option<String>,
    /// Over the sandbox's (and the session's) environment; `None` unsets.
    pub env: BTreeMap<String, Option<String>>,
    /// Take directory and environment from this session (made when it is not there).
    pub session: Option<SessionId>,
    /// Input will follow; otherwise it reads end of file.
    pub stdin: bool,
    /// Ended whole after so many ms; 0 never.
    pub timeout_ms: u64,
}

/// What is known of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its id.
    pub id: ProcessId,
    /// The session that it was started in.
    pub session: Option<SessionId>,
    /// As its agent told it; of a lost one what was noted.
    pub process: Process,
    /// It went with its sandbox's sleep or end, and its log with it. `process.end` is set where it
    /// had ended before.
    pub lost: bool,
    /// What was refused to its sandbox while it ran, as far as this server knows it.
    pub denied: Denied,
}

impl ProcessInfo {
    pub(crate) fn told(mut process: Process) -> Option<Self> {
        let id = ProcessId::parse(&process.id).ok()?;
        let session = process.session.take().and_then(|id| SessionId::parse(&id).ok());
        process.command.truncate(process.command.floor_char_boundary(COMMAND_BYTES_TOLD));
        Some(Self { id, session, process, lost: false, denied: Denied::default() })
    }
}
