//! Background processes: start, list, write to stdin, signal, kill.

mod lines;
pub(crate) mod log;
mod port;
mod view;
mod wait;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::creation::{created, idempotency_key};
use crate::foundation::error::ApiError;
use crate::foundation::input::{self, PathIds, program, stdin};
use crate::foundation::json::{SmallJson, StrictJson, UniqueMap, not_null};
use crate::foundation::lost::LostFields;
use crate::foundation::query::Query;
use crate::foundation::signals;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::service::Access;
use isolet_sandbox::{EnvironmentChange, ProcessId, ProcessSpec, SessionId};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use view::ProcessView;

/// The longest grace period, in ms: the response waits for it.
const GRACE_MS_MAX: u64 = 60_000;
/// The default grace period, in ms.
const GRACE_MS: u64 = 5_000;
const TERM: i32 = 15;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start, list, forget_all))
        .routes(routes!(get, forget))
        .routes(routes!(log::log))
        .routes(routes!(input))
        .routes(routes!(signal))
        .routes(routes!(kill))
        .routes(routes!(wait::wait))
}

/// A process to start. Exactly one of `command` and `argv` is needed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StartProcess {
    /// The id, unique in the sandbox. Defaults to a generated id.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// A command line for `bash -c`, at most 1 MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    command: Option<String>,
    /// The program and its arguments, without a shell.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    argv: Option<Vec<String>>,
    /// The session whose initial directory and environment to use. Created if it does not exist.
    /// The process outlives the session, unless the session sees only a part of the workspace.
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
    /// Keep the standard input open for `POST …/stdin`. Otherwise the process reads end of file.
    stdin: bool,
    /// The timeout in milliseconds, after which the process is ended with everything it started. 0
    /// means none.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
}

impl StartProcess {
    fn wish(self) -> Result<ProcessSpec, ApiError> {
        let cwd = input::cwd(self.cwd)?;
        let session = self.session.map(|id| SessionId::parse(&id)).transpose();
        let id = self.id.map(|id| ProcessId::parse(&id)).transpose();
        Ok(ProcessSpec {
            id: id.map_err(input::bad_id)?,
            program: program(self.command, self.argv)?,
            cwd,
            env: EnvironmentChange::parse(self.env.0)?,
            session: session.map_err(input::bad_id)?,
            stdin: self.stdin,
            timeout_ms: input::timeout(self.timeout_ms)?,
        })
    }
}

/// Bytes for the standard input of a process.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ProcessInput)]
pub(crate) struct Input {
    /// The bytes as text.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    data: Option<String>,
    /// The bytes in base64, instead of `data`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    data_b64: Option<String>,
    /// Close the standard input after these bytes.
    eof: bool,
}

/// A signal for a process.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ProcessSignal)]
pub(crate) struct Signal {
    /// The signal to send.
    #[schema(required = true, value_type = signals::SignalValue)]
    signal: Value,
    /// Send it to everything that the process started, not only to its process group.
    all: bool,
}

/// How to end a process. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = KillProcess)]
pub(crate) struct Kill {
    /// The signal that is sent first, to everything that the process started. Defaults to `"TERM"`.
    /// With `"KILL"`, there is no grace period.
    #[schema(value_type = Option<signals::SignalValue>)]
    signal: Option<Value>,
    /// The time in milliseconds after which what still runs is killed. Defaults to 5000, at most
    /// 60000.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    grace_ms: Option<u64>,
}

/// Start a background process
///
/// The process belongs to no connection: it runs until it ends or is ended, also across restarts of
/// the server. The server holds the last MiB of its output. A process does not keep its sandbox
/// awake, but a client that follows or waits for it does. Creates the sandbox if it does not exist.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/processes", operation_id = "processes_start", tag = "processes",
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = StartProcess, example = json!({"id": "web", "command": "python3 -m http.server 8080"})),
    responses(
        (status = 201, description = "The process was started.", body = ProcessView, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")))
    )
)]
pub(crate) async fn start(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: StrictJson<StartProcess>,
) -> Result<Response, ApiError> {
    let route = format!("POST /v1/sandboxes/{}/processes", ids.sandbox);
    let once = idempotency_key(&headers, &route, &body.raw)?;
    let wish = body.value.wish()?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::CreateIfMissing).await?;
    let (info, replayed) = sandbox.process_start(wish, once).await?;
    let location = format!("/v1/sandboxes/{}/processes/{}", ids.sandbox, info.id);
    let view = ProcessView::from(info).with_lost(LostFields::take(&sandbox));
    Ok(created(&location, replayed, Json(view)))
}

/// List processes
///
/// Returns running processes, the last 128 that ended, and those that a sleep or crash ended
/// (`lost`), oldest first. Does not wake a sleeping sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/processes", operation_id = "processes_list", tag = "processes",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The processes.", body = Vec<ProcessView>)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Vec<ProcessView>>, ApiError> {
    Query::of(&uri, &[])?;
    let all = app.look(&caller, &ids).await?.processes().await?;
    Ok(Json(all.into_iter().map(ProcessView::from).collect()))
}

/// End and remove all processes
///
/// Kills all processes with everything that they started, and removes them from the list.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/processes", operation_id = "processes_delete_all", tag = "processes",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 204, description = "All processes were removed.")
    )
)]
pub(crate) async fn forget_all(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<StatusCode, ApiError> {
    let sandbox = app.look(&caller, &ids).await?;
    for info in sandbox.processes().await? {
        sandbox.process_forget(&info.id).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Get a process
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/processes/{process}", operation_id = "processes_get", tag = "processes",
    params(
        ("id" = String, Path),
        ("process" = String, Path)
    ),
    responses(
        (status = 200, description = "The process.", body = ProcessView)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<ProcessView>, ApiError> {
    let info = app.look(&caller, &ids).await?.process(ids.process()?).await?;
    Ok(Json(info.into()))
}

/// End and remove a process
///
/// Kills the process with everything that it started, and removes it from the list. Answers 404
/// `no_such_process` if there is no such process.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/processes/{process}", operation_id = "processes_delete", tag = "processes",
    params(
        ("id" = String, Path),
        ("process" = String, Path)
    ),
    responses(
        (status = 204, description = "The process was removed.")
    )
)]
pub(crate) async fn forget(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<StatusCode, ApiError> {
    let sandbox = app.look(&caller, &ids).await?;
    let id = ids.process()?;
    sandbox.process(id).await?;
    sandbox.process_forget(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Write to the standard input of a process
///
/// Up to 1 MiB waits until the process reads it; more is refused with 429.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/processes/{process}/stdin", operation_id = "processes_write_stdin", tag = "processes",
    params(
        ("id" = String, Path),
        ("process" = String, Path)
    ),
    request_body = Input,
    responses(
        (status = 204, description = "The input was accepted.")
    )
)]
pub(crate) async fn input(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<Input>,
) -> Result<StatusCode, ApiError> {
    let Input { data, data_b64, eof } = body.value;
    let data = stdin("data", data, "data_b64", data_b64)?.unwrap_or_default();
    let sandbox = app.look(&caller, &ids).await?;
    sandbox.process_input(ids.process()?, &data, eof).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a signal to a process
///
/// Sends the signal to the process group, or with `all` to everything that the process started.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/processes/{process}/signal", operation_id = "processes_signal", tag = "processes",
    params(
        ("id" = String, Path),
        ("process" = String, Path)
    ),
    request_body = Signal,
    responses(
        (status = 204, description = "The signal was sent.")
    )
)]
pub(crate) async fn signal(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: SmallJson<Signal>,
) -> Result<StatusCode, ApiError> {
    let number = signals::parse(&body.value.signal)?;
    let sandbox = app.look(&caller, &ids).await?;
    sandbox.process_signal(ids.process()?, number, body.value.all).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Kill a process
///
/// Ends the process with everything that it started, and answers when nothing of it is left. The
/// process stays in the list. A process that has ended is returned as it is.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/processes/{process}/kill", operation_id = "processes_kill", tag = "processes",
    params(
        ("id" = String, Path),
        ("process" = String, Path)
    ),
    request_body = Kill,
    responses(
        (status = 200, description = "The ended process.", body = ProcessView)
    )
)]
pub(crate) async fn kill(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: SmallJson<Kill>,
) -> Result<Response, ApiError> {
    let number = body.value.signal.as_ref().map_or(Ok(TERM), signals::parse)?;
    let grace = body.value.grace_ms.unwrap_or(GRACE_MS);
    if grace > GRACE_MS_MAX {
        return Err(ApiError::bad_field("grace_ms", "0 to 60000 (a minute)"));
    }
    let sandbox = app.look(&caller, &ids).await?;
    let id = ids.process()?;
    let info = sandbox.process_kill(id, number, Duration::from_millis(grace)).await?;
    Ok(Json(ProcessView::from(info)).into_response())
}
