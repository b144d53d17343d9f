//! Processes: what a server and an agent say of programs that run in the background, each under an
//! id, with a log that stays.
//!
//! A log holds both streams in the order in which they were read. A *position* counts the bytes of
//! both together; an *offset* counts those of one stream. A connection that follows is answered
//! with [`crate::response::AgentResponse::ProcessLog`], then data frames ([`crate::response::STDOUT`] and
//! [`crate::response::STDERR`], with offsets, their ids empty) and [`crate::response::AgentResponse::ProcessGap`]
//! where bytes are no longer held, and at last [`crate::response::AgentResponse::Process`].

use crate::program::What;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a log, both streams together; fewer where there are many processes.
pub const LOG_BYTES: usize = 1024 * 1024;
/// Processes of which something runs, at once.
pub const LIVE_MAX: usize = 256;
/// Processes that have ended and are still told of; the oldest makes room.
pub const ENDED_MAX: usize = 128;
/// Input that waits for a process, in bytes; more is refused until it has read.
pub const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// What is told of a command line, in bytes.
pub const COMMAND_BYTES_TOLD: usize = 512;

/// What to do with processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessRequest {
    /// Answered by `Process` once it was executed, or by `Refused`.
    Start(Start),
    /// Answered by `Processes`, again and again, then `Done`: the oldest first.
    List,
    /// Answered by `Process`.
    Get(String),
    /// Sends its log from a position on; with `follow` until its end, else what is there now.
    Follow {
        /// Which.
        id: String,
        /// Where to go on; `None`: with what comes from now on.
        since: Option<u64>,
        /// Until its end.
        follow: bool,
    },
    /// Bytes for its standard input. Answered by `Done` when they were taken in line.
    Input {
        /// Which.
        id: String,
        /// At most 64 KiB.
        data: Vec<u8>,
        /// No more will come.
        eof: bool,
    },
    /// A signal to its process group, or to all that it started. Answered by `Done`.
    Signal {
        /// Which.
        id: String,
        /// 1 to 64.
        signal: i32,
        /// To every process that descends from it.
        all: bool,
    },
    /// Ends it with everything it started: a signal to all, then the end. Answered by `Process`
    /// when nothing of it is left.
    Kill {
        /// Which.
        id: String,
        /// The signal that comes first; 9 ends at once.
        signal: i32,
        /// How long the signal may take, in ms.
        grace_ms: u64,
    },
    /// Ends it as `Kill` with 9 does, and tells of it no more. Answered by `Done`, also where there was none.
    Forget(String),
}

/// A process to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Names it. One that is taken is refused with `IdInUse`.
    pub id: String,
    /// The session that it was started in; only told.
    pub session: Option<String>,
    /// What to run.
    pub what: What,
    /// Start directory.
    pub cwd: String,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// `Input` will follow; otherwise it reads end of file.
    pub stdin: bool,
    /// Ended whole after so many ms; 0 never.
    pub timeout_ms: u64,
}

/// A process as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub id: String,
    /// As in [`Start::session`].
    pub session: Option<String>,
    /// Its process id, inside.
    pub pid: i32,
    /// Its command line, the beginning of it.
    pub command: String,
    /// When it was started, in ms since 1970.
    pub started_at_ms: i64,
    /// How it ended, once it has.
    pub end: Option<End>,
    /// It has ended, and something that it started runs on.
    pub remains: bool,
    /// Its standard input is open.
    pub stdin: bool,
    /// Bytes of standard output so far.
    pub out: u64,
    /// Bytes of standard error so far.
    pub err: u64,
    /// The first position that its log holds.
    pub held: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its exit code; 128 + signal where a signal ended it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its timeout ended it.
    pub timed_out: bool,
    /// `Kill` was asked for before it ended.
    pub killed: bool,
    /// The kernel killed something of the sandbox for memory while it ran.
    pub oom: bool,
    /// When, in ms since 1970.
    pub at_ms: i64,
    /// From its start to its end, in microseconds.
    pub micros: u64,
}

/// A log that is being sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// The process as it is.
    pub process: Process,
    /// The position of the first byte that follows, unless a gap comes first.
    pub position: u64,
}
