//! Sessions: create, list, get, delete one or many, run commands.

use crate::{
    app::App,
    auth::caller::Caller,
    dialects::pokee::duration,
    foundation::{
        creation::{created, idempotency_key},
        error::ApiError,
        extensions::AuditedSandbox,
        input::{self, metadata},
        json::{Object, StrictJson, not_null},
        pagination::Pagination,
        query::{self, Query},
    },
    routes::{
        exec::{ExecAnswer, SessionExecBody, run_in},
        sessions::view::FileAccess,
    },
};
use axum::{
    Json,
    extract::{FromRequestParts, RawPathParams, State},
    http::{HeaderMap, StatusCode, Uri, request::Parts},
    response::Response,
};
use isolet_sandbox::{
    HOME, Life, Only, SandboxId, SessionId, SessionInfo, SessionSpec, info::TTL_S_MAX,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The default lifetime of a session, in seconds.
const TTL_S: u64 = 14_400;
/// The default number of entries on a page.
const PAGE: usize = 1000;

/// What a session is to be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateSession {
    /// `false`: it also ends five minutes after its last command, unless a client is attached.
    persistent: bool,
    /// Seconds to live, 14400 unless told, at most a year.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl: Option<u64>,
    /// The client's own words.
    #[schema(value_type = Object)]
    metadata: Object,
    /// What of the workspace it sees.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    file_access: Option<FileAccess>,
    /// Which sandbox it is in; `default` unless told. Made where it is not there.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    sandbox_id: Option<String>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Record {
    /// `sess_` and 12 hexadecimal digits.
    #[schema(value_type = String)]
    id: String,
    /// In seconds since 1970.
    created_at: f64,
    /// Last begin or end of a command, in seconds since 1970.
    last_activity: f64,
    /// A command or program of it is running.
    busy: bool,
    /// It does not end for want of commands.
    persistent: bool,
    /// Seconds from its creation to its end.
    ttl: u64,
    /// Always `ready`.
    status: &'static str,
    /// The client's own words.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// What of the workspace it sees.
    pub(super) file_access: FileAccess,
    /// Its sandbox.
    sandbox_id: String,
}

/// How many were ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deleted {
    deleted: usize,
}

/// The session id in the path of a request.
pub(crate) struct SessionPath(pub(super) SessionId);

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let all = RawPathParams::from_request_parts(parts, state).await;
        let all = all.map_err(|_| ApiError::bad_request("the path holds a malformed % escape"))?;
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
            file_access: FileAccess::told(info.file_access),
            sandbox_id: info.sandbox_id.into(),
        }
    }
}

/// Makes a session, in the tenant's default sandbox unless another is named.
///
/// It ends when its `ttl` is over, also in the middle of a command, and unless it is `persistent`
/// five minutes after its last command.
#[utoipa::path(post, path = "/v1/sessions", tag = "pokee", request_body = CreateSession,
    params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 201, body = Record), (status = "4XX", body = ApiError)))]
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
        metadata: metadata(body.metadata)?,
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

/// The sessions that were made here, sorted by id.
#[utoipa::path(get, path = "/v1/sessions", tag = "pokee",
    params(("limit" = Option<u64>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Vec<Record>), (status = "4XX", body = ApiError)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    let paging = Pagination::of(&uri, PAGE)?;
    let page = paging.cut(app.service.sessions(&caller.tenant), |one| one.id.as_str());
    Ok(paging.answer::<_, Record>("/v1/sessions", page))
}

/// One session.
#[utoipa::path(get, path = "/v1/sessions/{sid}", tag = "pokee", params(("sid" = String, Path)),
    responses((status = 200, body = Record), (status = 404, body = ApiError)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    SessionPath(id): SessionPath,
) -> Result<Json<Record>, ApiError> {
    Ok(Json(Record::from(app.service.session(&caller.tenant, &id)?)))
}

/// Ends a session, its shell and what runs in that.
#[utoipa::path(delete, path = "/v1/sessions/{sid}", tag = "pokee", params(("sid" = String, Path)),
    responses((status = 204), (status = 404, body = ApiError)))]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    SessionPath(id): SessionPath,
) -> Result<StatusCode, ApiError> {
    app.service.session_end(&caller.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends sessions in bulk: those for which every filter holds. At least one is needed.
#[utoipa::path(delete, path = "/v1/sessions", tag = "pokee",
    params(("status" = Option<String>, Query, description = "`idle`: without a running command."),
        ("older_than" = Option<String>, Query, description = "Not used for so long: `45s`, `2h`, `1h30m`.")),
    responses((status = 200, body = Deleted), (status = "4XX", body = ApiError)))]
pub(crate) async fn clean(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<Deleted>, ApiError> {
    let query = Query::of(&uri, &["status", "older_than"])?;
    let idle = match query.text("status")? {
        None => false,
        Some("idle") => true,
        Some(_) => return Err(query::bad_parameter("status", "only idle can be asked for")),
    };
    let older_than = match query.text("older_than")? {
        None => None,
        Some(text) => Some(duration::parse(text).ok_or_else(|| {
            query::bad_parameter("older_than", "hours, minutes and seconds as in 45s, 2h or 1h30m")
        })?),
    };
    if !idle && older_than.is_none() {
        let message = "name status=idle, older_than=…, or both; older_than=0s is every session";
        return Err(ApiError::bad_request(message));
    }
    let deleted = app.service.sessions_end(&caller.tenant, Only { idle, older_than }).await?;
    Ok(Json(Deleted { deleted }))
}

/// Runs a command in the session's shell, as below its sandbox.
#[utoipa::path(post, path = "/v1/sessions/{sid}/exec", tag = "pokee",
    params(("sid" = String, Path)), request_body = SessionExecBody,
    responses((status = 200, body = ExecAnswer), (status = "4XX", body = ApiError), (status = "5XX", body = ApiError)))]
pub(crate) async fn exec(
    State(app): State<App>,
    caller: Caller,
    SessionPath(id): SessionPath,
    headers: HeaderMap,
    body: StrictJson<SessionExecBody>,
) -> Result<Response, ApiError> {
    let session = app.service.session(&caller.tenant, &id)?;
    run_in(app, &caller, &session.sandbox_id, &id, &headers, body.value).await
}
