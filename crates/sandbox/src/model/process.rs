//! Background processes, as clients request and see them.

use crate::model::ids::{ProcessId, SessionId};
use crate::model::input::{EnvironmentChange, Program, WorkingDirectory};
use crate::model::network::denied::Denied;
use isolet_wire::process::{COMMAND_BYTES_TOLD, ProcessStatus};

/// The parameters of a new process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The id; the server generates one by default.
    pub id: Option<ProcessId>,
    /// The program to run.
    pub program: Program,
    /// The directory in which the program starts; by default the session's, then the sandbox's.
    pub cwd: Option<WorkingDirectory>,
    /// Overrides the environment of the session and the sandbox.
    pub env: EnvironmentChange,
    /// The session whose directory and environment the process inherits. It is created if it does
    /// not exist.
    pub session: Option<SessionId>,
    /// Keep standard input open; otherwise, the program reads end of file.
    pub stdin: bool,
    /// Time after which the process and its descendants are killed, in ms; 0 means never.
    pub timeout_ms: u64,
}

/// The description of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The id of the process.
    pub id: ProcessId,
    /// The session in which the process was started.
    pub session: Option<SessionId>,
    /// The status from the agent; for a lost process, the last one that the server recorded.
    pub process: ProcessStatus,
    /// The process and its log were lost with a sleep or the end of the sandbox. `process.end` is
    /// set if it had ended before.
    pub lost: bool,
    /// The network denials in the sandbox while the process ran, as far as this server knows them.
    pub denied: Denied,
}

impl ProcessInfo {
    pub(crate) fn from_status(mut process: ProcessStatus) -> Option<Self> {
        let id = ProcessId::parse(&process.id).ok()?;
        let session = process.session.take().and_then(|id| SessionId::parse(&id).ok());
        process.command.truncate(process.command.floor_char_boundary(COMMAND_BYTES_TOLD));
        Some(Self { id, session, process, lost: false, denied: Denied::default() })
    }
}
