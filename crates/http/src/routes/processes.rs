//! Background processes: start, list, write to stdin, signal, kill.

mod lines;
pub(crate) mod log;
mod port;
mod view;
mod wait;

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        creation::{created, idempotency_key},
        error::ApiError,
        input::{self, PathIds, program, stdin},
        json::{StrictJson, UniqueMap, not_null},
        query::Query,
        signals,
    },
    stream::captured_output::lost_field,
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use isolet_sandbox::{ProcessId, ProcessSpec, SessionId, service::Access};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
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

/// A process to be started: `command` or `argv`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StartProcess {
    /// Its id, unique in its sandbox; one is made unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// A command line for `bash -c`, at most 1 MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    command: Option<String>,
    /// Program and arguments, without a shell.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    argv: Option<Vec<String>>,
    /// The session whose directory and environment it begins with, as that was made; made where it
    /// is not there. The process outlives it, unless it sees only a part of the files.
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
    /// Its standard input stays open for `POST …/stdin`; end of file at once otherwise.
    stdin: bool,
    /// Ended with all that it started after so many ms; 0 never.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
}

impl StartProcess {
    fn wish(self) -> Result<ProcessSpec, ApiError> {
        input::cwd(self.cwd.as_deref())?;
        let session = self.session.map(|id| SessionId::parse(&id)).transpose();
        let id = self.id.map(|id| ProcessId::parse(&id)).transpose();
        Ok(ProcessSpec {
            id: id.map_err(input::bad_id)?,
            what: program(self.command, self.argv)?,
            cwd: self.cwd,
            env: input::env_change(self.env)?,
            session: session.map_err(input::bad_id)?,
            stdin: self.stdin,
            timeout_ms: input::timeout(self.timeout_ms)?,
        })
    }
}

/// Bytes for a process's standard input.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Input {
    /// Text.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    data: Option<String>,
    /// The same for bytes that are no UTF-8, in base64.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    data_b64: Option<String>,
    /// No more will come: it reads end of file behind this.
    eof: bool,
}

/// A signal.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Signal {
    /// A number from 1 to 64, or a name like `"INT"`.
    #[schema(value_type = Object)]
    signal: Value,
    /// To everything that it started, rather than to its process group.
    all: bool,
}

/// How a process is to end.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Kill {
    /// What everything that it started gets first; `"TERM"` unless told. `"KILL"` waits for nothing.
    #[schema(value_type = Object)]
    signal: Option<Value>,
    /// What still runs after so many ms is killed: 5000 unless told, at most 60000.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    grace_ms: Option<u64>,
}

/// Starts a process in the background.
///
/// It belongs to no connection: it runs until it ends, or is ended, over restarts of the server.
/// What it says is kept, the last MiB of it. Makes the sandbox where it is not there. It does not
/// keep the sandbox awake; who follows it or waits for it does.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes", tag = "processes",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same key and body give the same process, as long as it is listed; another body is refused with 422.")),
    request_body = StartProcess,
    responses((status = 201, body = ProcessView), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
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
    let mut text = serde_json::to_string(&ProcessView::from(info)).unwrap_or_default();
    text.pop();
    text.push_str(&lost_field(&sandbox));
    text.push('}');
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Ok(created(&location, replayed, (json, text)))
}

/// Processes of a sandbox, the oldest first: those that run, the last 128 that have ended, and those
/// that went with a sleep or a crash (`lost`). Wakes nothing.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes", tag = "processes",
    params(("id" = String, Path)),
    responses((status = 200, body = Vec<ProcessView>), (status = "4XX", body = ApiError)))]
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

/// Ends all processes with everything they started, and tells of them no more.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/processes", tag = "processes",
    params(("id" = String, Path)),
    responses((status = 204), (status = "4XX", body = ApiError)))]
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

/// One process, as it is at this moment.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}", tag = "processes",
    params(("id" = String, Path), ("process" = String, Path)),
    responses((status = 200, body = ProcessView), (status = "4XX", body = ApiError)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<ProcessView>, ApiError> {
    let info = app.look(&caller, &ids).await?.process(ids.process()?).await?;
    Ok(Json(info.into()))
}

/// Ends a process at once with everything it started, and tells of it no more; 404 where there is
/// none.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/processes/{process}", tag = "processes",
    params(("id" = String, Path), ("process" = String, Path)),
    responses((status = 204), (status = "4XX", body = ApiError)))]
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

/// Writes to a process's standard input.
///
/// What it does not read waits, up to 1 MiB; more is refused with 429.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/stdin", tag = "processes",
    params(("id" = String, Path), ("process" = String, Path)), request_body = Input,
    responses((status = 204), (status = "4XX", body = ApiError)))]
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

/// Sends a signal to a process's group, or to everything it started.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/signal", tag = "processes",
    params(("id" = String, Path), ("process" = String, Path)), request_body = Signal,
    responses((status = 204), (status = "4XX", body = ApiError)))]
pub(crate) async fn signal(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<Signal>,
) -> Result<StatusCode, ApiError> {
    let number = signals::parse(&body.value.signal)?;
    let sandbox = app.look(&caller, &ids).await?;
    sandbox.process_signal(ids.process()?, number, body.value.all).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a process with everything it started, wherever that has gone, and answers when nothing is
/// left; it stays listed. One that has ended is answered as it is.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/kill", tag = "processes",
    params(("id" = String, Path), ("process" = String, Path)), request_body = Kill,
    responses((status = 200, body = ProcessView), (status = "4XX", body = ApiError)))]
pub(crate) async fn kill(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<Kill>,
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
