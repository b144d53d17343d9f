//! Messages about background processes, each of which has an id and a log.
//!
//! A log holds both output streams in the order in which the agent read them. A *position* counts
//! the bytes of both streams together, and an *offset* counts the bytes of one stream. A connection
//! that follows a log receives [`crate::response::AgentResponse::ProcessLog`], then data frames
//! ([`crate::response::STDOUT`] and [`crate::response::STDERR`] with offsets and empty ids),
//! [`crate::response::AgentResponse::ProcessGap`] where the log no longer holds bytes, and finally
//! [`crate::response::AgentResponse::Process`].

use crate::program::Invocation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Size of a log in bytes, both streams together. Logs are smaller if there are many processes.
pub const LOG_BYTES: usize = 1024 * 1024;
/// Maximum number of processes that have not fully ended.
pub const LIVE_MAX: usize = 256;
/// Maximum number of ended processes that the agent remembers; the oldest one is dropped first.
pub const ENDED_MAX: usize = 128;
/// Maximum amount of unread input of a process, in bytes. The agent refuses more.
pub const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// How long a process waits for a follower with [`FollowMode::Patient`] that reads nothing, in ms.
pub const PATIENCE_MS: u64 = 60_000;
/// Maximum length of a reported command line, in bytes.
pub const COMMAND_BYTES_TOLD: usize = 512;

/// Requests about background processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessRequest {
    /// Start a process. Answered by `Process` once the program has been executed.
    Start(StartProcess),
    /// List all processes, the oldest first. Answered by several `Processes`, then `Done`.
    List,
    /// Describe the process with this id. Answered by `Process`.
    Get(String),
    /// Send the log of a process from a position on.
    Follow {
        /// The id of the process.
        id: String,
        /// The first position to send; `None` means only new output.
        since: Option<u64>,
        /// Where to stop, and how long the process waits for the follower.
        mode: FollowMode,
    },
    /// Write to standard input. Answered by `Done` when the bytes are in the input queue.
    Input {
        /// The id of the process.
        id: String,
        /// The input, at most 64 KiB.
        data: Vec<u8>,
        /// Close standard input after these bytes.
        eof: bool,
    },
    /// Send a signal. Answered by `Done`.
    Signal {
        /// The id of the process.
        id: String,
        /// The signal number, 1 to 64.
        signal: i32,
        /// Signal every descendant of the process; otherwise, only its process group.
        all: bool,
    },
    /// End a process and everything that it started, first with a signal and after a grace period
    /// with SIGKILL. Answered by `Process` when nothing is left.
    Kill {
        /// The id of the process.
        id: String,
        /// The first signal; 9 kills at once.
        signal: i32,
        /// Time between the signal and SIGKILL, in ms.
        grace_ms: u64,
    },
    /// Kill the process with this id and drop its log. Answered by `Done`, also if there is no such
    /// process.
    Forget(String),
}

/// Where a follower of a log stops, and how long the process waits for a follower that reads nothing
/// before it drops output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FollowMode {
    /// Stop at the current end of the log. The process does not wait.
    Current,
    /// Continue until the process ends. The process waits for a moment.
    Live,
    /// Continue until the process ends. The process waits up to [`PATIENCE_MS`].
    Patient,
}

/// The parameters of a new process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartProcess {
    /// The id of the process. An id in use is refused with `IdInUse`.
    pub id: String,
    /// The session in which the process was started, which the agent only reports.
    pub session: Option<String>,
    /// The program to run.
    pub program: Invocation,
    /// The directory in which the program starts.
    pub cwd: String,
    /// The complete environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Keep standard input open for `Input`; otherwise, the program reads end of file.
    pub stdin: bool,
    /// Time after which the process and its descendants are killed, in ms; 0 means never.
    pub timeout_ms: u64,
}

/// The status of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// The id of the process.
    pub id: String,
    /// The session of [`StartProcess::session`].
    pub session: Option<String>,
    /// Process id inside the sandbox.
    pub pid: i32,
    /// The beginning of the command line, at most [`COMMAND_BYTES_TOLD`] bytes.
    pub command: String,
    /// Start time, in ms since 1970.
    pub started_at_ms: i64,
    /// Set once the process has ended.
    pub end: Option<ProcessEnd>,
    /// The process has ended, but a process that it started still runs.
    pub remains: bool,
    /// Standard input is still open.
    pub stdin: bool,
    /// Bytes of standard output so far.
    pub out: u64,
    /// Bytes of standard error so far.
    pub err: u64,
    /// The first position that the log still holds.
    pub held: u64,
}

/// The result of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// The exit code; 128 + signal if a signal ended the process.
    pub code: i32,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// The timeout ended the process.
    pub timed_out: bool,
    /// A `Kill` request ended the process.
    pub killed: bool,
    /// The kernel killed a process of the sandbox for lack of memory while this process ran.
    pub oom: bool,
    /// End time, in ms since 1970.
    pub at_ms: i64,
    /// Duration of the process, in microseconds.
    pub micros: u64,
}

/// The beginning of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLogStart {
    /// The current status of the process.
    pub process: ProcessStatus,
    /// Position of the first byte that follows, unless a gap comes first.
    pub position: u64,
}
