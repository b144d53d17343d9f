//! Runs commands over HTTP, without a shell or in a session's shell.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        denied::{self, DeniedView},
        error::ApiError,
        event_encoding::accepts_event_stream,
        input::{self, PathIds, program, stdin},
        json::{StrictJson, UniqueMap, not_null},
    },
    stream::{
        captured_output::{CapturedOutput, Truncated, exit_fields, lost_field, output_limit_bytes},
        command::Command,
        command_events,
    },
};
use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use isolet_sandbox::{SandboxId, SessionId, Start, service::Access};
use isolet_wire::{request::Run, response::Exit};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A program to run: `command` or `argv`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExecBody {
    /// A command line for `bash -c`, at most 1 MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    command: Option<String>,
    /// Program and arguments, without a shell.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    argv: Option<Vec<String>>,
    /// The session whose directory, environment and timeout it begins with, as that was made: not
    /// its shell, nor what was changed there. The session is busy meanwhile; made where it is not there.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    session: Option<String>,
    /// Where it runs; `/workspace`, or the session's own, unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Over the sandbox's (and the session's) environment; `null` unsets.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// Its standard input; end of file at once otherwise.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin: Option<String>,
    /// The same for bytes that are no UTF-8, in base64.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin_b64: Option<String>,
    /// Killed whole after so many ms; 0 never. The session's own unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// Kept of each stream, in bytes: 8 MiB unless told, at most 64 MiB. Not for event streams.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    max_output_bytes: Option<u64>,
}

/// A command for a session's shell.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionExecBody {
    /// The text, as it would be typed, at most 1 MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    command: Option<String>,
    /// For this command only.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// For this command only; `null` unsets.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// Its standard input; end of file at once otherwise.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin: Option<String>,
    /// The same for bytes that are no UTF-8, in base64.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin_b64: Option<String>,
    /// Interrupted after so many ms of running, 0 never; the session's own unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// Kept of each stream, in bytes: 8 MiB unless told, at most 64 MiB. Not for event streams.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    max_output_bytes: Option<u64>,
    /// Standard error goes to standard output.
    merge: bool,
    /// Cancelled when the client goes away before its end; otherwise it goes on.
    cancel_on_close: bool,
}

/// How a command ended and what it said.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // Written by hand: outputs are large.
pub(crate) struct ExecAnswer {
    /// Exit code; 128 and the signal where one ended it.
    exit_code: i32,
    /// The signal that ended it.
    signal: Option<i32>,
    /// Its timeout ended it.
    timed_out: bool,
    /// The kernel killed something of the sandbox for memory meanwhile.
    oom: bool,
    /// Somebody cancelled it.
    cancelled: bool,
    /// From its start to its end, in ms.
    duration_ms: f64,
    /// Text; what is no UTF-8 is U+FFFD.
    stdout: String,
    /// Exact bytes, where the text is not them.
    stdout_b64: Option<String>,
    /// Text; what is no UTF-8 is U+FFFD.
    stderr: String,
    /// Exact bytes, where the text is not them.
    stderr_b64: Option<String>,
    /// What was written and is not here.
    truncated: Option<Truncated>,
    /// The session, where one was named.
    session: Option<String>,
    /// Its shell was opened in place of one that had ended (session commands).
    fresh: Option<bool>,
    /// In the first answer after the sandbox woke: what the sleep has ended, of `shells`,
    /// `processes`, `files` and `shell_state`.
    lost: Option<Vec<String>>,
    /// With `shell_state`: whose shells do not come back as they were.
    lost_state: Option<Vec<LostState>>,
    /// What was refused to the sandbox while this ran, whoever in it has tried; only where
    /// something was. At most 64; `PATCH …/network {"allow_add": denied}` opens it.
    denied: Option<Vec<DeniedView>>,
    /// How much more was refused.
    denied_lost: Option<u64>,
}

/// A session whose shell does not come back as it was.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)]
pub(crate) struct LostState {
    session: String,
    /// `crash` (what was done since it was saved), `too_large`, `no_answer`, `not_kept` or
    /// `not_restored`.
    why: String,
    /// It comes back as it was then, in milliseconds since 1970; `null`: as new.
    saved_at_ms: Option<i64>,
}

impl ExecBody {
    /// What to start, and its standard input.
    fn start(self) -> Result<(Start, Option<Vec<u8>>), ApiError> {
        let stdin = stdin("stdin", self.stdin, "stdin_b64", self.stdin_b64)?;
        input::cwd(self.cwd.as_deref())?;
        let session = self.session.map(|id| SessionId::parse(&id)).transpose();
        let start = Start {
            what: program(self.command, self.argv)?,
            cwd: self.cwd,
            env: input::env_change(self.env)?,
            session: session.map_err(input::bad_id)?,
            stdin: stdin.is_some(),
            timeout_ms: input::timeout(self.timeout_ms)?,
        };
        Ok((start, stdin))
    }
}

fn answer(exit: &Exit, output: &CapturedOutput, more: &str) -> Response {
    let mut text = Vec::with_capacity(1024);
    text.push(b'{');
    text.extend_from_slice(exit_fields(exit).as_bytes());
    output.write(&mut text);
    text.extend_from_slice(more.as_bytes());
    text.push(b'}');
    let mut response = text.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Runs a program without a shell behind it.
///
/// It has a process group of its own and is killed whole at its timeout, or when the client goes.
/// 409 `sandbox_destroyed` or `session_ended` when that was deleted meanwhile.
/// With `Accept: text/event-stream` the output comes as events `stdout` and `stderr`
/// (`{data, offset}`), then `exit`; with `; encoding=base64` behind it, as exact bytes
/// (`{data_b64, offset}`). Makes the sandbox where it is not there.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec", tag = "commands",
    params(("id" = String, Path)), request_body = ExecBody,
    responses((status = 200, body = ExecAnswer), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
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
    let mut named = String::new();
    if let Some(id) = &start.session {
        let session = sandbox.session_reach(id).await?;
        start.timeout_ms = timeout_ms.unwrap_or(session.command_timeout_ms);
        named = format!(",\"session\":\"{id}\"");
    }
    let command = Command::start_program(&sandbox, start, stdin).await?;
    let cancellation = app.cancellations.subscribe(&caller);
    if let Some(encoding) = accepts_event_stream(&headers) {
        return command_events::answer(
            command,
            encoding,
            named + &lost_field(&sandbox),
            cancellation,
        )
        .await;
    }
    let gathered = CapturedOutput::new(max, app.response_memory.share(&caller.tenant));
    let (exit, output, denied) = command.finish(gathered, cancellation).await?;
    let more = named + &lost_field(&sandbox) + &denied::fields(&denied);
    Ok(answer(&exit, &output, &more))
}

/// Runs a command in a session's shell.
///
/// Directory, environment, variables and jobs stay for the next. Commands of a session run one
/// after the other; a full queue is 429. 409 `sandbox_destroyed` or `session_ended` when that was
/// deleted meanwhile. The command goes on when the client goes, unless
/// `cancel_on_close` says otherwise. With
/// `Accept: text/event-stream` as for `exec`. Makes sandbox and session where they are not there.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/sessions/{sid}/exec", tag = "commands",
    params(("id" = String, Path), ("sid" = String, Path)), request_body = SessionExecBody,
    responses((status = 200, body = ExecAnswer), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
pub(crate) async fn in_session(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: StrictJson<SessionExecBody>,
) -> Result<Response, ApiError> {
    run_in(app, &caller, &ids.sandbox, ids.session()?, &headers, body.value).await
}

/// Runs a command in the shell of a session.
pub(crate) async fn run_in(
    app: App,
    caller: &Caller,
    sandbox: &SandboxId,
    session: &SessionId,
    headers: &HeaderMap,
    body: SessionExecBody,
) -> Result<Response, ApiError> {
    let stdin = stdin("stdin", body.stdin, "stdin_b64", body.stdin_b64)?;
    let max = output_limit_bytes(body.max_output_bytes)?;
    input::cwd(body.cwd.as_deref())?;
    let text = body.command.ok_or_else(|| ApiError::bad_field("command", "is needed"))?;
    input::command(&text)?;
    input::timeout(body.timeout_ms)?;
    let mut run = Run {
        text,
        cwd: body.cwd,
        env: input::env_change(body.env)?,
        merge: body.merge,
        ..Run::default()
    };
    let sandbox = app.service.reach(&caller.tenant, sandbox, Access::CreateIfMissing).await?;
    run.timeout_ms = match body.timeout_ms {
        Some(ms) => ms,
        None => sandbox.session_reach(session).await?.command_timeout_ms,
    };
    let command = Command::in_session(&sandbox, session, run, stdin, body.cancel_on_close).await?;
    let named = format!(",\"session\":\"{session}\"");
    let cancellation = app.cancellations.subscribe(caller);
    if let Some(encoding) = accepts_event_stream(headers) {
        return command_events::answer(
            command,
            encoding,
            named + &lost_field(&sandbox),
            cancellation,
        )
        .await;
    }
    let gathered = CapturedOutput::new(max, app.response_memory.share(&caller.tenant));
    let (exit, output, denied) = command.finish(gathered, cancellation).await?;
    let more = lost_field(&sandbox) + &denied::fields(&denied);
    Ok(answer(&exit, &output, &format!("{named},\"fresh\":{}{more}", exit.fresh)))
}
