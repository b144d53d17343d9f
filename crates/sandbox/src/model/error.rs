//! Why an operation failed: one variant per cause, with what `http` needs to answer.

use crate::model::{
    agent_error::AgentError,
    ids::{ProcessId, SandboxId, SessionId},
};
use isolet_wire::response::RefusalReason;
use rustix::io::Errno;

/// Why a call on sandboxes failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No sandbox of this tenant has this id (or it belongs to another: the same answer).
    #[error("no sandbox {0}")]
    NoSandbox(SandboxId),
    /// A sandbox with this id exists.
    #[error("sandbox {0} exists")]
    SandboxExists(SandboxId),
    /// The sandbox has failed; its disk is kept until it is deleted.
    #[error("sandbox {id} has failed: {cause}")]
    Failed {
        /// Which.
        id: SandboxId,
        /// Why, in words: `agent killed`, `out of memory`.
        cause: String,
    },
    /// The sandbox's agent does not answer; nothing of it was killed.
    #[error("sandbox {0} does not answer")]
    Unreachable(SandboxId),
    /// The sandbox sleeps, and this call does not wake it.
    #[error("sandbox {0} is asleep")]
    Sleeping(SandboxId),
    /// Somebody works in the sandbox: it cannot be put to sleep.
    #[error("sandbox {0} is in use")]
    InUse(SandboxId),
    /// No such session in this sandbox.
    #[error("no session {session} in sandbox {id}")]
    NoSession {
        /// Which sandbox.
        id: SandboxId,
        /// Which session.
        session: SessionId,
    },
    /// A session with this id exists.
    #[error("session {0} exists")]
    SessionExists(SessionId),
    /// `default` exists by itself and cannot be deleted; end the sandbox instead.
    #[error("cannot delete default session")]
    DefaultSession,
    /// A field of the wish is out of its bounds.
    #[error("{field}: {reason}")]
    BadField {
        /// Its name, as in the native API.
        field: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// What a session may write of the workspace is no longer to be had: another session has put
    /// something in its place.
    #[error("session {session} cannot be entered: {reason}")]
    ScopeBlocked {
        /// Which session.
        session: SessionId,
        /// Which path, and what is there.
        reason: String,
    },
    /// This machine cannot do what a field asks for.
    #[error("{field}: this machine cannot: {reason}")]
    Lacks {
        /// Its name, as in the native API.
        field: &'static str,
        /// What is missing, and how to provide it.
        reason: String,
    },
    /// This machine cannot give sandboxes a network.
    #[error("this machine cannot give sandboxes a network: {0}")]
    NoWay(String),
    /// What gives sandboxes a network has ended, or does not answer; it is started anew.
    #[error("networks are not to be had at this moment: {0}")]
    WayLost(String),
    /// The disk of the data directory is nearly full: nothing is made or uploaded.
    #[error("{free_mib} MiB are free on the server's disk, {floor_mib} are kept free")]
    NoSpace {
        /// Free now, in MiB.
        free_mib: u64,
        /// The floor, in MiB.
        floor_mib: u64,
    },
    /// The image is not to be had.
    #[error(transparent)]
    Image(#[from] isolet_image::Error),
    /// The tenant has as many sandboxes as it may.
    #[error("tenant has {max} sandboxes, the most it may have")]
    TooManySandboxes {
        /// The limit.
        max: u32,
    },
    /// The sandbox has as many sessions as it may.
    #[error("sandbox has {max} sessions, the most it may have")]
    TooManySessions {
        /// The limit.
        max: usize,
    },
    /// No such recording of this sandbox.
    #[error("no recording {recording} of sandbox {id}")]
    NoRecording {
        /// Which sandbox.
        id: SandboxId,
        /// What was asked for.
        recording: String,
    },
    /// No process of this id in this sandbox, or none any more.
    #[error("no process {process} in sandbox {id}")]
    NoProcess {
        /// Which sandbox.
        id: SandboxId,
        /// Which process.
        process: ProcessId,
    },
    /// The process went with its sandbox's sleep or end, and its log with it.
    #[error("process {process} of sandbox {id} was lost when the sandbox slept or ended")]
    ProcessLost {
        /// Which sandbox.
        id: SandboxId,
        /// Which process.
        process: ProcessId,
    },
    /// The sandbox has as many recordings as it may.
    #[error("sandbox has {max} recordings, the most it may have")]
    TooManyRecordings {
        /// The limit.
        max: usize,
    },
    /// No link leads to this port.
    #[error("no link leads to port {port} of sandbox {id}")]
    NotExposed {
        /// Which sandbox.
        id: SandboxId,
        /// Which port.
        port: u16,
    },
    /// Links lead to as many ports of the sandbox as they may.
    #[error("links lead to {max} ports of the sandbox, the most there may be")]
    TooManyExposed {
        /// The limit.
        max: usize,
    },
    /// More than this server can hold.
    #[error("this server is full: {0}")]
    ServerFull(&'static str),
    /// The idempotency key was used with another body.
    #[error("idempotency key was used with another body")]
    OtherBody,
    /// This machine lacks something that sandboxes need.
    #[error("this machine cannot make sandboxes: {}", .0.join("; "))]
    Missing(Vec<String>),
    /// The sandbox could not be made; nothing of it is left.
    #[error("cannot make the sandbox: step {step}: {reason}")]
    Launch {
        /// The step that failed.
        step: String,
        /// The kernel's answer in words.
        reason: String,
    },
    /// A granted path of a session's scope was refused; nothing of the scope is left.
    #[error("cannot start the session's scope: grant {index}: {errno}")]
    GrantRefused {
        /// The index of the grant in the request.
        index: usize,
        /// Why the launcher could not open the path.
        errno: Errno,
    },
    /// The server's disk is full; nothing of the sandbox is left.
    #[error("cannot make the sandbox: step {step}: no space left on the server's disk")]
    DiskFull {
        /// The step that failed.
        step: String,
    },
    /// The agent refused what was asked.
    #[error("{message}")]
    Refused {
        /// Why, for programs.
        why: RefusalReason,
        /// Why, for people.
        message: String,
    },
    /// The connection to the agent failed.
    #[error(transparent)]
    Link(#[from] AgentError),
    /// It was not done in its time.
    #[error("{0} took too long")]
    TooLate(&'static str),
    /// The disk of the records is full; nothing was changed.
    #[error("no space left for records")]
    StoreFull,
    /// The disk of the records has failed; nothing is recorded until the server is started anew.
    #[error("the disk of the records did not take what was written")]
    StoreBroken,
    /// The records cannot be read or written; nothing was changed.
    #[error("records: {0}")]
    Store(String),
    /// The server is stopping; sandboxes stay.
    #[error("the server is stopping")]
    Stopping,
    /// No network profile of that name.
    #[error("no network profile {0}")]
    NoProfile(String),
    /// As many network profiles as a tenant may keep.
    #[error("at most {max} network profiles")]
    TooManyProfiles {
        /// How many that are.
        max: usize,
    },
    /// A fault of this server. Only this call suffers.
    #[error("internal fault: {0}")]
    Fault(String),
}

impl From<isolet_store::Error> for Error {
    fn from(error: isolet_store::Error) -> Self {
        match error {
            isolet_store::Error::Full => Self::StoreFull,
            isolet_store::Error::Unsynced => Self::StoreBroken,
            other => Self::Store(other.to_string()),
        }
    }
}

/// Why a server could not start on its data directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server holds the data directory.
    #[error("{path} is held by process {holder}")]
    Held {
        /// The lock file.
        path: String,
        /// What it names.
        holder: String,
    },
    /// The records cannot be used.
    #[error(transparent)]
    Store(#[from] isolet_store::Error),
    /// A file or directory of the server.
    #[error("{path}")]
    Io {
        /// Which.
        path: String,
        /// The kernel's answer.
        #[source]
        source: std::io::Error,
    },
    /// Another fault.
    #[error("{0}")]
    Fault(String),
    /// The launcher could not be started.
    #[error("launcher: {0}")]
    Launcher(String),
}
