//! Messages about code contexts: interpreters that keep their variables between runs.
//!
//! A connection that sends [`ContextRequest::Run`] serves that run until
//! [`ContextResponse::RunEnded`]. Before the end, the agent sends [`ContextResponse::RunStarted`],
//! then data frames with standard output and standard error (offsets count from 0 within the run,
//! ids are empty) and [`ContextResponse::Part`]s with what the interpreter displays, in the order
//! in which they were produced. The agent answers every other request at once.
//!
//! A part holds JSON from the interpreter's driver, which runs as the tenant. The agent forwards it
//! without reading it, and the server does not trust it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kind of a part that holds a value to display: `{"kind","data","metadata"}`.
pub const DISPLAY: u8 = 2;
/// Kind of a part that holds the error that ended the run: `{"name","message","traceback"}`.
pub const ERROR: u8 = 3;
/// Maximum size of one [`ContextResponse::Part`], in bytes.
pub const PART_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of one message from a driver, in bytes. The agent kills a driver that exceeds it.
pub const SAID_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of a label, in bytes.
pub const LABEL_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of contexts of one agent.
pub const CONTEXTS_MAX: usize = 64;
/// Maximum number of runs in the queue of one context.
pub const QUEUE_MAX: usize = 64;

/// Variable in [`OpenContext::env`] that names the Jupyter kernel to start; the kernel does not see
/// the variable. With [`Language::Python`] it means: use a kernel if the image has one, otherwise
/// `python3`.
pub const KERNEL: &str = "ISOLET_CONTEXT_KERNEL";

/// Variable in [`OpenContext::env`] that allows the agent to start a spare kernel in advance.
pub const SPARE: &str = "ISOLET_CONTEXT_SPARE";

/// Variable in [`OpenContext::env`] that has IPython's kernel add the data of charts and tables to
/// what it displays.
pub const STRUCTURED: &str = "ISOLET_CONTEXT_STRUCTURED";

/// Maximum timeout of a run, in ms: one day.
pub const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// The language of a context, and the interpreter that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Language {
    /// Python, run by `python3`.
    Python,
    /// JavaScript, run by `node`.
    JavaScript,
    /// Run by `node` after the types have been removed.
    TypeScript,
    /// Bash, run by `bash`.
    Bash,
    /// Run by the Jupyter kernel of the image that [`KERNEL`] names.
    Jupyter,
}

/// Requests about code contexts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContextRequest {
    /// Open a context. The agent answers with [`ContextResponse::State`] when the interpreter is
    /// ready, or refuses.
    Open(OpenContext),
    /// Run code after the runs that are already in the context's queue.
    Run(ContextRun),
    /// Interrupt the current run of the context with this id. Answered by
    /// [`ContextResponse::Interrupted`].
    Interrupt(String),
    /// Replace the interpreter of the context with this id. Answered by [`ContextResponse::State`].
    Restart(String),
    /// End the context with this id and every process that it started. Answered by `Done`, also if
    /// there was no such context.
    Close(String),
    /// List all contexts. Answered by one [`ContextResponse::State`] for each, then `Done`.
    List,
}

/// The parameters of a new context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenContext {
    /// The id of the new context.
    pub context: String,
    /// The language that the context runs.
    pub language: Language,
    /// The directory in which the interpreter starts.
    pub cwd: String,
    /// The complete environment of the interpreter.
    pub env: BTreeMap<String, String>,
    /// The timeout of runs that set none, in ms; 1 to [`TIMEOUT_MS_MAX`].
    pub timeout_ms: u64,
    /// Opaque data of the server, at most [`LABEL_BYTES_MAX`], which every [`ContextStatus`]
    /// returns.
    pub label: Vec<u8>,
    /// Use an existing context of this id; otherwise the agent refuses with `Exists`.
    pub reuse: bool,
}

/// A request to run code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextRun {
    /// The id of the context.
    pub context: String,
    /// JSON for the driver: `{"code","stdin","env"}`. `env` has environment variables of this run
    /// only, where `null` unsets one.
    pub body: Vec<u8>,
    /// Time after which the run is interrupted, in ms; the interpreter is killed if that does not
    /// help. 0 means the timeout of the context.
    pub timeout_ms: u64,
}

/// Answers about code contexts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContextResponse {
    /// The current state of one context.
    State(ContextStatus),
    /// Whether there was a run to interrupt.
    Interrupted(bool),
    /// The interpreter starts with this run.
    RunStarted {
        /// The interpreter replaced one that had ended, so the earlier variables are lost.
        fresh: bool,
    },
    /// The next bytes of a message from the driver.
    Part {
        /// What the part contains: [`DISPLAY`] or [`ERROR`].
        kind: u8,
        /// The bytes, at most [`PART_BYTES_MAX`].
        bytes: Vec<u8>,
        /// This is the last part of the message.
        last: bool,
    },
    /// The run has ended, and the connection is free for another request.
    RunEnded(ContextRunEnd),
}

/// The current state of a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextStatus {
    /// The id of the context.
    pub context: String,
    /// The language that was requested, or [`Language::Jupyter`] if a kernel of the image runs it.
    pub language: Language,
    /// The label that the context was opened with.
    pub label: Vec<u8>,
    /// Process id of the interpreter inside the sandbox; 0 while there is none.
    pub pid: i32,
    /// A run is in progress.
    pub busy: bool,
    /// Number of runs in the queue.
    pub queued: u32,
    /// Number of runs that have started.
    pub runs: u64,
    /// Number of times that the interpreter was replaced.
    pub restarts: u64,
    /// This request opened the context.
    pub new: bool,
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextRunEnd {
    /// The timeout ended the run.
    pub timed_out: bool,
    /// A client interrupted the run, restarted the context, or removed the run from the queue.
    pub interrupted: bool,
    /// The kernel killed a process of the sandbox for lack of memory during the run.
    pub oom: bool,
    /// Set if the interpreter ended during the run.
    pub died: Option<InterpreterExit>,
    /// Bytes of standard output that the run wrote.
    pub out: u64,
    /// Bytes of standard error that the run wrote.
    pub err: u64,
    /// Bytes that were written between runs and dropped because the buffer was full.
    pub lost: u64,
    /// Number of this run in its context, from 1.
    pub number: u64,
    /// Duration of the run, in microseconds.
    pub micros: u64,
}

/// How an interpreter ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterpreterExit {
    /// The exit code, if the interpreter exited.
    pub code: Option<i32>,
    /// The signal, if one ended the interpreter.
    pub signal: Option<i32>,
}
