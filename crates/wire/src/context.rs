//! Code contexts: what a server and an agent say of an interpreter that keeps its variables.
//!
//! A connection that sends [`ContextRequest::Run`] belongs to that run until [`ContextResponse::End`]. Before it come
//! [`ContextResponse::Began`], data frames of standard output and standard error (offsets count from 0 within
//! the run, ids are empty), and in their order between these what the interpreter displays, as
//! [`ContextResponse::Part`]s. Everything else is answered at once. What a part holds is JSON of the
//! interpreter's driver, which runs as the tenant: an agent hands it on unread, and a server reads
//! it as a stranger's.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kind of a part: something to show, `{"kind","data","metadata"}`.
pub const DISPLAY: u8 = 2;
/// Kind of a part: the error that ended the run, `{"name","message","traceback"}`.
pub const ERROR: u8 = 3;
/// The most bytes in one [`ContextResponse::Part`].
pub const PART_BYTES_MAX: usize = 64 * 1024;
/// The longest that a driver may say at once, in bytes; one that says more is ended.
pub const SAID_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The longest label, in bytes.
pub const LABEL_BYTES_MAX: usize = 8 * 1024;
/// Contexts of one agent.
pub const CONTEXTS_MAX: usize = 64;
/// Runs that wait in one context.
pub const QUEUE_MAX: usize = 64;

/// The name in [`Open::env`] of the kernel's name; the kernel itself does not see it. In one of
/// [`Language::Python`]: a kernel where the image has one, and `python3` alone otherwise.
pub const KERNEL: &str = "ISOLET_CONTEXT_KERNEL";

/// The name in [`Open::env`] that says that there is room for a kernel that is begun ahead.
pub const SPARE: &str = "ISOLET_CONTEXT_SPARE";

/// The longest that a run may take, in ms: a day.
pub const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// What a context speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Language {
    /// By `python3`.
    Python,
    /// By `node`.
    JavaScript,
    /// By `node`, once its types are taken out.
    TypeScript,
    /// By `bash`.
    Bash,
    /// By a Jupyter kernel of the image; [`KERNEL`] names it.
    Jupyter,
}

/// What a server asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContextRequest {
    /// Open one. Answered by [`ContextResponse::Is`] once its interpreter is ready, or refused.
    Open(Open),
    /// Run code in one, after what waits there.
    Run(Run),
    /// Interrupt what runs in one. Answered by [`ContextResponse::Interrupted`].
    Interrupt(String),
    /// End its interpreter and begin with a new one. Answered by [`ContextResponse::Is`].
    Restart(String),
    /// End one and all it started. Answered by `Done`, also where there was none.
    Close(String),
    /// Answered by a [`ContextResponse::Is`] for each, then `Done`.
    List,
}

/// How a context is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Its id.
    pub context: String,
    /// What it speaks.
    pub language: Language,
    /// Start directory.
    pub cwd: String,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// For runs that name none, in ms; 1 to [`TIMEOUT_MS_MAX`].
    pub timeout_ms: u64,
    /// The server's own words about it, at most [`LABEL_BYTES_MAX`]; told back with it.
    pub label: Vec<u8>,
    /// One of this id that is there already will do; otherwise refused with `Exists`.
    pub reuse: bool,
}

/// Code for a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Which.
    pub context: String,
    /// For its driver, as JSON: `{"code","stdin"}`.
    pub body: Vec<u8>,
    /// Interrupted after so many ms of running, and its interpreter killed where that does not
    /// help; 0: as the context has it.
    pub timeout_ms: u64,
}

/// What an agent says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContextResponse {
    /// One context, as it is now.
    Is(Context),
    /// Whether anything ran that was interrupted.
    Interrupted(bool),
    /// The run begins.
    Began {
        /// Its interpreter was started in place of one that had ended: nothing of that is left.
        fresh: bool,
    },
    /// The next bytes of what its driver says.
    Part {
        /// [`DISPLAY`] or [`ERROR`].
        kind: u8,
        /// At most [`PART_BYTES_MAX`].
        bytes: Vec<u8>,
        /// This was all of it.
        last: bool,
    },
    /// The run is over; the connection is free again.
    End(End),
}

/// A context, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Its id.
    pub context: String,
    /// What it was opened to speak; [`Language::Jupyter`] also where a kernel of the image does
    /// that for another.
    pub language: Language,
    /// As it was opened with.
    pub label: Vec<u8>,
    /// Process id of its interpreter, inside; 0 while there is none.
    pub pid: i32,
    /// Something runs.
    pub busy: bool,
    /// Runs that wait.
    pub queued: u32,
    /// Runs that have begun.
    pub runs: u64,
    /// How often its interpreter was started anew.
    pub restarts: u64,
    /// This call opened it.
    pub new: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its timeout ended it.
    pub timed_out: bool,
    /// Somebody interrupted it, restarted its context, or took it out of the queue.
    pub interrupted: bool,
    /// The kernel killed something of the sandbox for memory while it ran.
    pub oom: bool,
    /// Its interpreter ended with it: by this code, or by this signal.
    pub died: Option<Died>,
    /// Bytes of standard output.
    pub out: u64,
    /// Bytes of standard error.
    pub err: u64,
    /// Bytes that were written between runs and are not held any more.
    pub lost: u64,
    /// Counts the runs of this context, from 1.
    pub number: u64,
    /// From its beginning to its end, in µs.
    pub micros: u64,
}

/// How an interpreter ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Died {
    /// Its exit code, where it exited.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}
