//! A process, as the native API writes it.

use crate::foundation::denied::{self, DeniedView};
use crate::foundation::lost::{LostFields, LostStateView};
use crate::foundation::time::ms;
use isolet_sandbox::ProcessInfo;
use serde::Serialize;
use utoipa::ToSchema;

/// A background process of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
// More than 12 fields: it has one for each member of the JSON object.
pub(crate) struct ProcessView {
    /// The id, unique in its sandbox.
    #[schema(value_type = String)]
    id: String,
    /// The session that it was started in, if any.
    #[schema(required = true)]
    session: Option<String>,
    /// `running`; `exited`; `killed` (a signal ended it); `lost` (a sleep or crash of its sandbox
    /// ended it).
    status: &'static str,
    /// Its command line, at most the first 512 bytes.
    command: String,
    /// The process id inside the sandbox. `null` for a lost process.
    #[schema(required = true)]
    pid: Option<i32>,
    /// The exit code; 128 plus the signal number if a signal ended it. `null` while it runs.
    #[schema(required = true)]
    exit_code: Option<i32>,
    /// The number of the signal that ended it.
    #[schema(required = true)]
    signal: Option<i32>,
    /// Whether its timeout ended it.
    timed_out: bool,
    /// Whether the kernel killed a process of the sandbox for lack of memory while it ran.
    oom: bool,
    /// Whether it has ended but processes that it started still run. `kill` ends these too.
    remains: bool,
    /// Whether its standard input is open.
    stdin: bool,
    /// When it was started, in milliseconds since 1970.
    started_at_ms: i64,
    /// When it ended, in milliseconds since 1970.
    #[schema(required = true)]
    ended_at_ms: Option<i64>,
    /// The running time, in milliseconds. `null` while it runs.
    #[schema(required = true)]
    duration_ms: Option<f64>,
    /// Bytes of standard output so far.
    stdout_bytes: u64,
    /// Bytes of standard error so far.
    stderr_bytes: u64,
    /// The end of its log: bytes of both streams together.
    position: u64,
    /// The first position that the server still holds.
    held_from: u64,
    /// What its sandbox was denied while it ran, since the start of the server; at most 64 entries.
    /// Absent if nothing was denied, and in the answer with a log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    denied: Vec<DeniedView>,
    /// Only in the answer to its start, if that is the first answer after the sandbox woke: what
    /// the sleep ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<&'static str>>,
    /// With `shell_state` in `lost`: the shells that do not come back as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_state: Option<Vec<LostStateView>>,
}

impl ProcessView {
    /// The exit code, if it has ended.
    pub(super) fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    /// Adds what the sleep before the start of the process ended.
    pub(super) fn with_lost(self, fields: LostFields) -> Self {
        let LostFields { lost, lost_state } = fields;
        Self { lost, lost_state, ..self }
    }
}

impl From<ProcessInfo> for ProcessView {
    fn from(info: ProcessInfo) -> Self {
        let process = info.process.clone();
        let end = info.process.end;
        let status = match &end {
            Some(end) if end.signal.is_some() => "killed",
            Some(_) => "exited",
            None if info.lost => "lost",
            None => "running",
        };
        Self {
            id: info.id.into(),
            session: info.session.map(Into::into),
            status,
            command: process.command,
            pid: (!info.lost).then_some(process.pid),
            exit_code: end.as_ref().map(|end| end.code),
            signal: end.as_ref().and_then(|end| end.signal),
            timed_out: end.as_ref().is_some_and(|end| end.timed_out),
            oom: end.as_ref().is_some_and(|end| end.oom),
            remains: process.remains,
            stdin: process.stdin,
            started_at_ms: process.started_at_ms,
            ended_at_ms: end.as_ref().map(|end| end.at_ms),
            duration_ms: end.as_ref().map(|end| ms(end.micros)),
            stdout_bytes: process.out,
            stderr_bytes: process.err,
            position: process.out.saturating_add(process.err),
            held_from: process.held,
            denied: denied::views(info.denied),
            lost: None,
            lost_state: None,
        }
    }
}
