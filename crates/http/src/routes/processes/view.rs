//! A process, as the native API writes it.

use crate::{
    foundation::denied::{self, DeniedView},
    stream::captured_output::ms,
};
use isolet_sandbox::ProcessInfo;
use serde::Serialize;
use utoipa::ToSchema;

/// A process in the background.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProcessView {
    /// Its id, unique in its sandbox.
    #[schema(value_type = String)]
    id: String,
    /// The session that it was started in.
    session: Option<String>,
    /// `running`; `exited`; `killed` (a signal ended it); `lost` (it went with a sleep or a crash of
    /// its sandbox).
    status: &'static str,
    /// Its command line, at most the first 512 bytes.
    command: String,
    /// Its process id inside, while it is not lost.
    pid: Option<i32>,
    /// Exit code; 128 and the signal where one ended it; `null` while it runs.
    exit_code: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
    /// Its timeout ended it.
    timed_out: bool,
    /// The kernel killed something of the sandbox for memory while it ran.
    oom: bool,
    /// It has ended, and something that it started runs on; `kill` ends that too.
    remains: bool,
    /// Its standard input is open.
    stdin: bool,
    /// In ms since 1970.
    started_at_ms: i64,
    /// In ms since 1970.
    ended_at_ms: Option<i64>,
    /// From its start to its end, in ms.
    duration_ms: Option<f64>,
    /// Bytes of standard output so far.
    stdout_bytes: u64,
    /// Bytes of standard error so far.
    stderr_bytes: u64,
    /// Where its log goes on: bytes of both streams together.
    position: u64,
    /// The first position that its log holds.
    held_from: u64,
    /// What was refused to its sandbox while it ran, whoever in it has tried, since the server's
    /// start; only where something was, at most 64. Not in a log's answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    denied: Vec<DeniedView>,
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
        }
    }
}
