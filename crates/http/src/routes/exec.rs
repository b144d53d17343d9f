//! Runs commands over HTTP, without a shell or in a session's shell.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::denied::{DeniedFields, DeniedView};
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::accepts_event_stream;
use crate::foundation::input::{self, PathIds, program, stdin};
use crate::foundation::json::{StrictJson, UniqueMap, not_null};
use crate::foundation::json_text::{self, OutputText};
use crate::foundation::lost::{LostFields, LostStateView};
use crate::foundation::time::Millis;
use crate::stream::captured_output::{CapturedOutput, OutputFields, Truncated, output_limit_bytes};
use crate::stream::command::{FinishedCommand, RunningCommand, ShellCommand};
use crate::stream::command_events::{self, ExitReport};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use isolet_sandbox::service::Access;
use isolet_sandbox::{
    CommandText, Denied, EnvironmentChange, ProgramSpec, SandboxId, SessionId, TRACE_TARGET,
};
use isolet_wire::response::CommandExit;
use serde::{Deserialize, Serialize};
use tracing::info_span;
use utoipa::ToSchema;

/// A command to run. Exactly one of `command` and `argv` is needed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ExecRequest)]
pub(crate) struct ExecBody {
    /// A command line for `bash -c`, at most 1 MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    command: Option<String>,
    /// The program and its arguments, without a shell.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    argv: Option<Vec<String>>,
    /// The session whose initial directory, environment and timeout to use. Its shell is not
    /// involved. The session counts as busy while the command runs, and is created if it does not
    /// exist.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    session: Option<String>,
    /// The working directory. Defaults to that of the session, or to `/workspace`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Environment variables to set, or with `null` to unset.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// The standard input as text. Without `stdin` and `stdin_b64`, the command reads end of file.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin: Option<String>,
    /// The standard input in base64, for bytes that are not valid UTF-8.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin_b64: Option<String>,
    /// The timeout in milliseconds, after which the command is killed with everything it started. 0
    /// means none. Defaults to that of the session, or to none.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// The most bytes of each stream in the answer: 8 MiB by default, at most 64 MiB. Does not
    /// apply to event streams.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    max_output_bytes: Option<u64>,
}

/// A command for the shell of a session.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = SessionExecRequest)]
pub(crate) struct SessionExecBody {
    /// The text of the command, as it would be typed; at most 1 MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    command: Option<String>,
    /// The working directory, for this command only.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Environment variables to set, or with `null` to unset, for this command only.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// The standard input as text. Without `stdin` and `stdin_b64`, the command reads end of file.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin: Option<String>,
    /// The standard input in base64, for bytes that are not valid UTF-8.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin_b64: Option<String>,
    /// The timeout in milliseconds of running, after which the command is interrupted. 0 means
    /// none. Defaults to that of the session.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// The most bytes of each stream in the answer: 8 MiB by default, at most 64 MiB. Does not
    /// apply to event streams.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    max_output_bytes: Option<u64>,
    /// Send standard error to standard output.
    merge: bool,
    /// Cancel the command if the client disconnects before its end.
    cancel_on_close: bool,
}

/// The result of a command.
#[derive(Debug, Serialize, ToSchema)]
// More than 12 fields: it has one for each member of the JSON object.
#[schema(as = ExecResult)]
pub(crate) struct ExecAnswer<'a> {
    /// The exit code; 128 plus the signal number if a signal ended the command.
    exit_code: i32,
    /// The number of the signal that ended the command.
    #[schema(required = true)]
    signal: Option<i32>,
    /// Whether the timeout ended the command.
    timed_out: bool,
    /// Whether the kernel killed a process of the sandbox for lack of memory while the command ran.
    oom: bool,
    /// Whether a client cancelled the command.
    cancelled: bool,
    /// The running time, in milliseconds.
    #[schema(value_type = f64)]
    duration_ms: Millis,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    #[schema(value_type = String)]
    stdout: OutputText<'a>,
    /// The exact bytes in base64. Present only if the text differs from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    stdout_b64: Option<OutputText<'a>>,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    #[schema(value_type = String)]
    stderr: OutputText<'a>,
    /// The exact bytes in base64. Present only if the text differs from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    stderr_b64: Option<OutputText<'a>>,
    /// How much output the answer leaves out.
    #[schema(required = true)]
    truncated: Option<Truncated>,
    /// The session. Present only if the request named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    session: Option<String>,
    /// Whether the shell was started for this command because the earlier one had ended. Only for
    /// commands in a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    fresh: Option<bool>,
    /// Whether the shell has ended with this command, as `exit` does. The next command then starts
    /// another shell. Only for commands in a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    shell_ended: Option<bool>,
    /// What the last sleep ended: any of `shells`, `processes`, `files`, `shell_state`, `terminals`
    /// and others. Present only in the first answer after the sandbox woke.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost: Option<Vec<&'static str>>,
    /// The sessions whose shell state was not restored completely. Present only if `lost` contains
    /// `shell_state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost_state: Option<Vec<LostStateView>>,
    /// The network traffic of the whole sandbox that was denied while this ran; at most 64 entries.
    /// Absent if nothing was denied. To allow it, send `{"allow_add": denied}` to `PATCH
    /// /v1/sandboxes/{id}/network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    denied: Option<Vec<DeniedView>>,
    /// The number of further entries that `denied` leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    denied_lost: Option<u64>,
}

impl<'a> ExecAnswer<'a> {
    /// An answer without a value for `fresh`.
    fn new(
        exit: &CommandExit,
        output: OutputFields<'a>,
        report: ExitReport,
        denied: Denied,
    ) -> Self {
        let OutputFields { stdout, stdout_b64, stderr, stderr_b64, truncated, text_bytes: _ } =
            output;
        let ExitReport { session, lost: LostFields { lost, lost_state }, shell_ended } = report;
        let DeniedFields { denied, denied_lost } = denied.into();
        Self {
            exit_code: exit.code,
            signal: exit.signal,
            timed_out: exit.timed_out,
            oom: exit.oom,
            cancelled: exit.cancelled,
            duration_ms: Millis::from_micros(exit.micros),
            stdout,
            stdout_b64,
            stderr,
            stderr_b64,
            truncated,
            session: session.map(String::from),
            fresh: None,
            shell_ended,
            lost,
            lost_state,
            denied,
            denied_lost,
        }
    }
}

impl ExecBody {
    /// What to start, and its standard input.
    fn start(self) -> Result<(ProgramSpec, Option<Vec<u8>>), ApiError> {
        let stdin = stdin("stdin", self.stdin, "stdin_b64", self.stdin_b64)?;
        let cwd = input::cwd(self.cwd)?;
        let session = self.session.map(|id| SessionId::parse(&id)).transpose();
        let start = ProgramSpec {
            program: program(self.command, self.argv)?,
            cwd,
            env: EnvironmentChange::parse(self.env.0)?,
            session: session.map_err(input::bad_id)?,
            stdin: stdin.is_some(),
            timeout_ms: input::timeout(self.timeout_ms)?,
        };
        Ok((start, stdin))
    }
}

/// A [`SessionExecBody`] whose members are checked.
pub(crate) struct SessionExec {
    command: ShellCommand,
    output_limit_bytes: usize,
}

impl SessionExecBody {
    pub(crate) fn parse(self) -> Result<SessionExec, ApiError> {
        let stdin = stdin("stdin", self.stdin, "stdin_b64", self.stdin_b64)?;
        let output_limit_bytes = output_limit_bytes(self.max_output_bytes)?;
        let cwd = input::cwd(self.cwd)?;
        let text = self.command.ok_or_else(|| ApiError::bad_field("command", "is required"))?;
        let text = CommandText::parse(text)?;
        input::timeout(self.timeout_ms)?;
        let command = ShellCommand {
            text,
            cwd,
            env: EnvironmentChange::parse(self.env.0)?,
            stdin,
            timeout_ms: self.timeout_ms,
            merge: self.merge,
            ends_with_client: self.cancel_on_close,
        };
        Ok(SessionExec { command, output_limit_bytes })
    }
}

/// Run a program without a shell
///
/// Runs the program in a process group of its own. The server kills the whole group at its timeout,
/// or when the client disconnects. Creates the sandbox if it does not exist. Answers 409
/// `sandbox_destroyed` or `session_ended` when the sandbox or session is deleted while the command
/// runs.
///
/// With `Accept: text/event-stream`, the output is streamed as server-sent events while the command
/// runs:
///
/// | event | data |
/// |---|---|
/// | `stdout`, `stderr` | `{"data", "offset"}`; with `Accept: text/event-stream; encoding=base64` exact bytes as `{"data_b64", "offset"}` |
/// | `gap` | `{"stream", "from", "to"}`: bytes that are no longer held |
/// | `exit` | how the command ended: the fields of the JSON answer without its output, and `out_bytes` and `err_bytes`; the last event |
/// | `error` | `{"error", "message", "hint"}`; the last event |
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/exec", operation_id = "sandboxes_exec", tag = "commands",
    params(
        ("id" = String, Path)
    ),
    request_body(content = ExecBody, example = json!({"command": "python3 --version", "timeout_ms": 10000})),
    responses(
        (status = 200, description = "The command ended, whatever its exit code, or with `Accept: text/event-stream` a stream of its output.", content((ExecAnswer = "application/json"), (String = "text/event-stream")))
    )
)]
pub(crate) async fn alone(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: StrictJson<ExecBody>,
) -> Result<Response, ApiError> {
    let max = output_limit_bytes(body.value.max_output_bytes)?;
    let timeout_ms = body.value.timeout_ms;
    let (mut start, stdin) = body.value.start()?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::CreateIfMissing).await?;
    if let Some(id) = &start.session {
        let session = sandbox.session_reach(id).await?;
        start.timeout_ms = timeout_ms.unwrap_or(session.command_timeout_ms);
    }
    let session = start.session.clone();
    let command = RunningCommand::start_program(&sandbox, start, stdin).await?;
    let cancellation = app.cancellations.subscribe(&caller);
    if let Some(encoding) = accepts_event_stream(&headers) {
        let lost = LostFields::take(&sandbox);
        let report = ExitReport { session, lost, shell_ended: None };
        return command_events::answer(command, encoding, report, cancellation).await;
    }
    let gathered = CapturedOutput::new(max, app.response_memory.share(&caller.tenant));
    let done = command.finish(gathered, cancellation).await?;
    let FinishedCommand { exit, output, denied, shell_ended } = done;
    let report = ExitReport { session, lost: LostFields::take(&sandbox), shell_ended };
    let _span = info_span!(target: TRACE_TARGET, "answer").entered();
    let fields = output.fields();
    let text_bytes = fields.text_bytes;
    Ok(json_text::response(&ExecAnswer::new(&exit, fields, report, denied), text_bytes))
}

/// Run a command in the shell of a session
///
/// The working directory, environment, variables and jobs stay for the next command. Commands of
/// one session run one after the other; when 64 already wait, the call is refused with 429
/// `queue_full`. The command continues when the client disconnects, unless `cancel_on_close` is
/// set. Creates the sandbox and the session if they do not exist. Answers 409 `sandbox_destroyed`
/// or `session_ended` when the sandbox or session is deleted while the command runs.
///
/// With `Accept: text/event-stream`, the output is streamed as server-sent events while the command
/// runs:
///
/// | event | data |
/// |---|---|
/// | `stdout`, `stderr` | `{"data", "offset"}`; with `Accept: text/event-stream; encoding=base64` exact bytes as `{"data_b64", "offset"}` |
/// | `gap` | `{"stream", "from", "to"}`: bytes that are no longer held |
/// | `exit` | how the command ended: the fields of the JSON answer without its output, and `out_bytes` and `err_bytes`; the last event |
/// | `error` | `{"error", "message", "hint"}`; the last event |
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/sessions/{sid}/exec", operation_id = "sessions_exec", tag = "commands",
    params(
        ("id" = String, Path),
        ("sid" = String, Path)
    ),
    request_body(content = SessionExecBody, example = json!({"command": "cd src && export MODE=test && ls"})),
    responses(
        (status = 200, description = "The command ended, whatever its exit code, or with `Accept: text/event-stream` a stream of its output.", content((ExecAnswer = "application/json"), (String = "text/event-stream")))
    )
)]
pub(crate) async fn in_session(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: StrictJson<SessionExecBody>,
) -> Result<Response, ApiError> {
    let exec = body.value.parse()?;
    exec.run(&app, &caller, &ids.sandbox, ids.session()?.clone(), &headers).await
}

impl SessionExec {
    /// Runs the command in the shell of a session, and answers with its result or its events.
    pub(crate) async fn run(
        self,
        app: &App,
        caller: &Caller,
        sandbox: &SandboxId,
        session: SessionId,
        headers: &HeaderMap,
    ) -> Result<Response, ApiError> {
        let sandbox = app.service.reach(&caller.tenant, sandbox, Access::CreateIfMissing).await?;
        let command = RunningCommand::in_session(&sandbox, &session, self.command).await?;
        let cancellation = app.cancellations.subscribe(caller);
        if let Some(encoding) = accepts_event_stream(headers) {
            let session = Some(session);
            let lost = LostFields::take(&sandbox);
            let report = ExitReport { session, lost, shell_ended: None };
            return command_events::answer(command, encoding, report, cancellation).await;
        }
        let memory = app.response_memory.share(&caller.tenant);
        let gathered = CapturedOutput::new(self.output_limit_bytes, memory);
        let done = command.finish(gathered, cancellation).await?;
        let FinishedCommand { exit, output, denied, shell_ended } = done;
        let lost = LostFields::take(&sandbox);
        let report = ExitReport { session: Some(session), lost, shell_ended };
        let _span = info_span!(target: TRACE_TARGET, "answer").entered();
        let fields = output.fields();
        let text_bytes = fields.text_bytes;
        let mut answer = ExecAnswer::new(&exit, fields, report, denied);
        answer.fresh = Some(exit.fresh);
        Ok(json_text::response(&answer, text_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_their_bytes() {
        let output = || OutputFields {
            stdout: "a�b".into(),
            stdout_b64: Some("Yf9i".into()),
            stderr: "x\"".into(),
            stderr_b64: None,
            truncated: None,
            text_bytes: 12,
        };
        let exit = CommandExit {
            code: 143,
            signal: Some(15),
            timed_out: true,
            micros: 1500,
            ..CommandExit::default()
        };
        let plain = ExecAnswer::new(&exit, output(), ExitReport::default(), Denied::default());
        let start = r#"{"exit_code":143,"signal":15,"timed_out":true,"oom":false,"cancelled":false,"duration_ms":1.5,"stdout":"a�b","stdout_b64":"Yf9i","stderr":"x\"","truncated":null"#;
        assert_eq!(json_text::to_string(&plain, 0), format!("{start}}}"));
        let lost = LostFields { lost: Some(vec!["shells"]), lost_state: Some(Vec::new()) };
        let session = Some("s".parse().unwrap());
        let report = ExitReport { session, lost, shell_ended: Some(false) };
        let denied = Denied { list: Vec::new(), lost: 2 };
        let mut full = ExecAnswer::new(&exit, output(), report, denied);
        full.fresh = Some(true);
        let end = r#","session":"s","fresh":true,"shell_ended":false,"lost":["shells"],"lost_state":[],"denied":[],"denied_lost":2}"#;
        assert_eq!(json_text::to_string(&full, 0), format!("{start}{end}"));
    }
}
