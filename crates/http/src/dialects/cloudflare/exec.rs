//! `POST /v1/sandbox/{id}/exec`: runs a command and streams its output.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::cloudflare::address::{sandbox, session, within};
use crate::dialects::cloudflare::error::BridgeError;
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::EventEncoding;
use crate::foundation::input;
use crate::foundation::json::{StrictJson, not_null};
use crate::stream::command::{RunningCommand, ShellCommand};
use crate::stream::command_events::{self, ExitReport};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use isolet_sandbox::service::Access;
use isolet_sandbox::{CommandText, Program, ProgramSpec, WorkingDirectory};
use serde::Deserialize;
use utoipa::ToSchema;

/// A command to run in the sandbox.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = BridgeExecRequest)]
pub(crate) struct BridgeExec {
    /// The program and its arguments. They are not expanded by a shell; use `sh -c` for that.
    #[schema(required = true)]
    argv: Vec<String>,
    /// The timeout in milliseconds, after which the command is killed. 0 (default) means none.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// The working directory below `/workspace`. Defaults to `/workspace`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
}

impl BridgeExec {
    /// Quotes the program and its arguments. A shell runs them, so that `cd` and `export` work in a
    /// session and an unknown program exits with 127.
    fn parse(self) -> Result<ShellCommand, BridgeError> {
        if self.argv.is_empty() {
            return Err(ApiError::bad_request("argv must be a non-empty array").into());
        }
        let text = CommandText::parse(quoted(&self.argv))?;
        let cwd = input::cwd(self.cwd)?.map(below_workspace).transpose()?;
        input::timeout(self.timeout_ms)?;
        Ok(ShellCommand {
            text,
            cwd,
            timeout_ms: self.timeout_ms,
            ends_with_client: true,
            ..ShellCommand::default()
        })
    }
}

/// Normalizes a working directory, which must lie in the workspace.
fn below_workspace(cwd: WorkingDirectory) -> Result<WorkingDirectory, BridgeError> {
    let inside = within(cwd.as_str().as_bytes()).and_then(|path| String::from_utf8(path).ok());
    Ok(WorkingDirectory::parse(inside.ok_or_else(|| BridgeError::outside("cwd"))?)?)
}

/// Quotes words for a shell.
fn quoted(words: &[String]) -> String {
    let words = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    words.collect::<Vec<_>>().join(" ")
}

/// Run a command
///
/// Without `Session-Id`, runs the command alone; with it, in the shell of that session. The command
/// ends when the client disconnects. Creates the sandbox if it does not exist.
///
/// | event | data |
/// |---|---|
/// | `stdout`, `stderr` | bytes in base64 |
/// | `exit` | `{"exit_code": n}` |
/// | `error` | `{"error", "code"}`: the timeout killed the command, or output was lost |
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/exec", operation_id = "cloudflare_exec", tag = "cloudflare",
    params(
        ("id" = String, Path),
        ("Session-Id" = Option<String>, Header, description = "The session to use.")
    ),
    request_body = BridgeExec,
    responses(
        (status = 200, description = "A stream of server-sent events.", content_type = "text/event-stream", body = String)
    )
)]
pub(crate) async fn exec(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<StrictJson<BridgeExec>, ApiError>,
) -> Result<Response, BridgeError> {
    let id = sandbox(&id)?;
    let session = session(&headers)?;
    let command = body?.value.parse()?;
    let sandbox = app.service.reach(&caller.tenant, &id, Access::CreateIfMissing).await?;
    let command = match session {
        None => {
            let start = ProgramSpec {
                program: Program::Command(command.text),
                cwd: command.cwd,
                timeout_ms: command.timeout_ms.unwrap_or(0),
                ..ProgramSpec::default()
            };
            RunningCommand::start_program(&sandbox, start, None).await?
        }
        Some(session) => RunningCommand::in_session(&sandbox, &session, command).await?,
    };
    let cancellation = app.cancellations.subscribe(&caller);
    Ok(command_events::answer(command, EventEncoding::Bridge, ExitReport::default(), cancellation)
        .await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        let words = ["sh", "-c", "it's $HOME *", ""].map(str::to_owned);
        assert_eq!(quoted(&words), r"'sh' '-c' 'it'\''s $HOME *' ''");
    }
}
