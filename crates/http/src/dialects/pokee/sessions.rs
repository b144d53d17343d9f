//! Sessions: create, list, get, delete one or many, run commands.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::pokee::duration;
use crate::foundation::creation::{created, idempotency_key};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::AuditedSandbox;
use crate::foundation::input;
use crate::foundation::json::{Object, StrictJson, not_null};
use crate::foundation::pagination::Pagination;
use crate::foundation::query::{self, Query};
use crate::routes::exec::{ExecAnswer, SessionExecBody};
use crate::routes::sessions::view::{FileAccess, FileAccessView};
use axum::Json;
use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use isolet_sandbox::info::TTL_S_MAX;
use isolet_sandbox::{HOME, Life, Metadata, Only, SandboxId, SessionId, SessionInfo, SessionSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The default lifetime of a session, in seconds.
const TTL_S: u64 = 14_400;
/// The default number of entries on a page.
const PAGE: usize = 1000;

/// The settings of a new session. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = PokeeCreateSession)]
pub(crate) struct CreateSession {
    /// Whether the session stays when it is not used. Otherwise it ends five minutes after its last
    /// command, unless a client is attached.
    persistent: bool,
    /// The lifetime in seconds, at most a year. Defaults to 14400.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl: Option<u64>,
    /// Data of the client, returned unchanged. At most 16 KiB.
    #[schema(value_type = Object)]
    metadata: Object,
    /// The part of the workspace that the session sees.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    file_access: Option<FileAccess>,
    /// The sandbox, which is created if it does not exist. Defaults to `default`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    sandbox_id: Option<String>,
}

/// A session with a limited lifetime.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PokeeSession)]
pub(crate) struct Record {
    /// The id: `sess_` and 12 hexadecimal digits.
    #[schema(value_type = String)]
    id: String,
    /// When it was created, in seconds since 1970.
    created_at: f64,
    /// When a command last started or ended, in seconds since 1970.
    last_activity: f64,
    /// Whether a command or program of the session is running.
    busy: bool,
    /// Whether the session stays when it is not used.
    persistent: bool,
    /// The lifetime in seconds, counted from the creation.
    ttl: u64,
    /// Always `ready`: sessions need no preparation.
    status: &'static str,
    /// Data of the client, returned unchanged.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// The part of the workspace that the session sees.
    pub(super) file_access: FileAccessView,
    /// The id of its sandbox.
    sandbox_id: String,
}

/// The number of deleted sessions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PokeeDeletedSessions)]
pub(crate) struct Deleted {
    /// The number of deleted sessions.
    deleted: usize,
}

/// The session id in the path of a request.
pub(crate) struct SessionPath(pub(super) SessionId);

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let all = RawPathParams::from_request_parts(parts, state).await;
        let all =
            all.map_err(|_| ApiError::bad_request("the path contains a malformed % escape"))?;
        let id = all.iter().find(|(name, _)| *name == "sid").map_or("", |(_, value)| value);
        SessionId::parse(id).map(Self).map_err(input::bad_id)
    }
}

impl From<SessionInfo> for Record {
    fn from(info: SessionInfo) -> Self {
        let life = info.life.unwrap_or(Life { ttl_s: TTL_S, ends_idle: false, across: true });
        Self {
            id: info.id.into(),
            created_at: info.created_at_ms as f64 / 1000.0,
            last_activity: info.last_activity_ms as f64 / 1000.0,
            busy: info.busy,
            persistent: !life.ends_idle,
            ttl: life.ttl_s,
            status: "ready",
            metadata: info.metadata,
            file_access: info.file_access.into(),
            sandbox_id: info.sandbox_id.into(),
        }
    }
}

/// Create a session
///
/// The session ends when its `ttl` is over, even while a command runs. Unless it is `persistent`,
/// it also ends five minutes after its last command.
#[utoipa::path(
    post, path = "/v1/sessions", operation_id = "pokee_sessions_create", tag = "pokee",
    params(
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = CreateSession, example = json!({"persistent": true, "ttl": 3600})),
    responses(
        (status = 201, description = "The session was created.", body = Record, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")))
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: StrictJson<CreateSession>,
) -> Result<Response, ApiError> {
    let once = idempotency_key(&headers, "POST /v1/sessions", &body.raw)?;
    let body = body.value;
    let ttl_s = body.ttl.unwrap_or(TTL_S);
    if ttl_s == 0 || ttl_s > TTL_S_MAX {
        return Err(ApiError::bad_field("ttl", "seconds from 1 to 31622400 (a year)"));
    }
    let wish = SessionSpec {
        metadata: Metadata::parse(body.metadata.0)?,
        file_access: body.file_access.map(FileAccess::wish).transpose()?,
        life: Some(Life { ttl_s, ends_idle: !body.persistent, across: true }),
        ..SessionSpec::default()
    };
    let sandbox = body.sandbox_id.as_deref().unwrap_or(HOME);
    let sandbox = SandboxId::parse(sandbox).map_err(input::bad_id)?;
    let made = app.service.session_create(&caller.tenant, &sandbox, wish, once).await?;
    let record = Record::from(made.0);
    let mut answer = created(&format!("/v1/sessions/{}", record.id), made.1, Json(record));
    answer.extensions_mut().insert(AuditedSandbox(sandbox));
    Ok(answer)
}

/// List sessions
///
/// Returns the sessions that were created with `POST /v1/sessions`, sorted by id.
#[utoipa::path(
    get, path = "/v1/sessions", operation_id = "pokee_sessions_list", tag = "pokee",
    params(
        ("limit" = Option<u64>, Query),
        ("cursor" = Option<String>, Query)
    ),
    responses(
        (status = 200, description = "One page of sessions.", body = Vec<Record>, headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one.")))
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    let paging = Pagination::of(&uri, PAGE)?;
    let page = paging.cut(app.service.sessions(&caller.tenant), |one| one.id.as_str());
    Ok(paging.answer::<_, Record>("/v1/sessions", page))
}

/// Get a session
#[utoipa::path(
    get, path = "/v1/sessions/{sid}", operation_id = "pokee_sessions_get", tag = "pokee",
    params(
        ("sid" = String, Path)
    ),
    responses(
        (status = 200, description = "The session.", body = Record)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    SessionPath(id): SessionPath,
) -> Result<Json<Record>, ApiError> {
    Ok(Json(Record::from(app.service.session(&caller.tenant, &id)?)))
}

/// Delete a session
///
/// Ends the session, its shell and what runs in that shell.
#[utoipa::path(
    delete, path = "/v1/sessions/{sid}", operation_id = "pokee_sessions_delete", tag = "pokee",
    params(
        ("sid" = String, Path)
    ),
    responses(
        (status = 204, description = "The session was deleted.")
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    SessionPath(id): SessionPath,
) -> Result<StatusCode, ApiError> {
    app.service.session_end(&caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete several sessions
///
/// Deletes the sessions for which every given filter holds. At least one filter is needed.
#[utoipa::path(
    delete, path = "/v1/sessions", operation_id = "pokee_sessions_delete_many", tag = "pokee",
    params(
        ("status" = Option<String>, Query, description = "`idle`: sessions without a running command."),
        ("older_than" = Option<String>, Query, description = "Sessions that were not used for this long: `45s`, `2h`, `1h30m`.")
    ),
    responses(
        (status = 200, description = "How many sessions were deleted.", body = Deleted)
    )
)]
pub(crate) async fn clean(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<Deleted>, ApiError> {
    let query = Query::of(&uri, &["status", "older_than"])?;
    let idle = match query.text("status")? {
        None => false,
        Some("idle") => true,
        Some(_) => return Err(query::bad_parameter("status", "must be idle")),
    };
    let older_than = match query.text("older_than")? {
        None => None,
        Some(text) => Some(duration::parse(text).ok_or_else(|| {
            query::bad_parameter("older_than", "hours, minutes and seconds as in 45s, 2h or 1h30m")
        })?),
    };
    if !idle && older_than.is_none() {
        let message =
            "pass status=idle, older_than=…, or both; older_than=0s matches every session";
        return Err(ApiError::bad_request(message));
    }
    let deleted = app.service.sessions_end(&caller.tenant, Only { idle, older_than }).await?;
    Ok(Json(Deleted { deleted }))
}

/// Run a command in the shell of a session
///
/// Works like `POST /v1/sandboxes/{id}/sessions/{sid}/exec`.
#[utoipa::path(
    post, path = "/v1/sessions/{sid}/exec", operation_id = "pokee_sessions_exec", tag = "pokee",
    params(
        ("sid" = String, Path)
    ),
    request_body = SessionExecBody,
    responses(
        (status = 200, description = "The command ended, whatever its exit code, or with `Accept: text/event-stream` a stream of its output.", content((ExecAnswer = "application/json"), (String = "text/event-stream")))
    )
)]
pub(crate) async fn exec(
    State(app): State<App>,
    caller: Caller,
    SessionPath(id): SessionPath,
    headers: HeaderMap,
    body: StrictJson<SessionExecBody>,
) -> Result<Response, ApiError> {
    let session = app.service.session(&caller.tenant, &id)?;
    body.value.parse()?.run(&app, &caller, &session.sandbox_id, id, &headers).await
}
