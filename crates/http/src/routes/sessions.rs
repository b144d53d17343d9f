//! Sessions of a sandbox, each with its own shell, directory and environment.

pub(crate) mod view;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::creation::{created, idempotency_key};
use crate::foundation::error::ApiError;
use crate::foundation::input::{self, NotImplemented, PathIds};
use crate::foundation::json::{Object, StrictJson, UniqueMap, not_null};
use crate::foundation::pagination::Pagination;
use crate::routes::sessions::view::{FileAccess, SessionView};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use isolet_sandbox::info::TTL_S_MAX;
use isolet_sandbox::service::Access;
use isolet_sandbox::{
    Environment, EnvironmentChange, Life, Metadata, SessionId, SessionPatch, SessionSpec,
};
use serde::Deserialize;
use utoipa::ToSchema;

/// The default number of entries on a page.
const PAGE: usize = 1000;

/// The settings of a new session. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateSession {
    /// The id: `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`. Defaults to a generated id.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// Where its shell starts, relative to `/workspace`. The directory must exist (400 `bad_cwd`).
    /// Defaults to `/workspace`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Environment variables, in addition to those of the sandbox.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    env: UniqueMap<String>,
    /// The timeout of commands that name none, in milliseconds. 0 means none.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    command_timeout_ms: Option<u64>,
    /// The lifetime in seconds; the session ends even while a command runs. 0 means no limit.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
    /// Data of the client, returned unchanged. At most 16 KiB.
    #[schema(value_type = Object)]
    metadata: Object,
    /// The part of the workspace that the session sees. Defaults to all of it.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    file_access: Option<FileAccess>,
    #[schema(ignore)]
    network: NotImplemented,
}

impl CreateSession {
    fn wish(self) -> Result<SessionSpec, ApiError> {
        self.network.reject("network", crate::routes::sandboxes::OWN_NETWORK)?;
        let cwd = input::cwd(self.cwd)?;
        let env = Environment::parse(self.env.0)?;
        check_timeout(self.command_timeout_ms)?;
        Ok(SessionSpec {
            id: self.id.map(|id| SessionId::parse(&id)).transpose().map_err(input::bad_id)?,
            cwd,
            env,
            command_timeout_ms: self.command_timeout_ms,
            metadata: Metadata::parse(self.metadata.0)?,
            life: ttl(self.ttl_s)?,
            file_access: self.file_access.map(FileAccess::wish).transpose()?,
        })
    }
}

/// Changes to a session. Fields that are left out keep their value.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = UpdateSession)]
pub(crate) struct ChangeSession {
    /// Environment variables to set, or with `null` to remove. Programs, processes, terminals and
    /// shells that start later have them; an open shell keeps its variables.
    #[schema(value_type = std::collections::BTreeMap<String, Option<String>>)]
    env: UniqueMap<Option<String>>,
    /// The timeout of commands that name none, in milliseconds. 0 means none.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    command_timeout_ms: Option<u64>,
    /// Replaces the data of the client. At most 16 KiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<Object>, nullable = false)]
    metadata: Option<Object>,
}

impl ChangeSession {
    fn patch(self) -> Result<SessionPatch, ApiError> {
        check_timeout(self.command_timeout_ms)?;
        Ok(SessionPatch {
            env: EnvironmentChange::parse(self.env.0)?,
            command_timeout_ms: self.command_timeout_ms,
            metadata: self.metadata.map(|new| Metadata::parse(new.0)).transpose()?,
        })
    }
}

/// Checks the timeout of a session's commands.
fn check_timeout(ms: Option<u64>) -> Result<(), ApiError> {
    let reason = "0 (never) to 86400000 (a day)";
    let checked = input::timeout(ms).map(drop);
    checked.map_err(|_| ApiError::bad_field("command_timeout_ms", reason))
}

/// The lifetime of a session.
fn ttl(seconds: Option<u64>) -> Result<Option<Life>, ApiError> {
    match seconds.unwrap_or(0) {
        0 => Ok(None),
        ttl_s if ttl_s <= TTL_S_MAX => Ok(Some(Life { ttl_s, ends_idle: false, across: false })),
        _ => Err(ApiError::bad_field("ttl_s", "0 (never) to 31622400 (a year)")),
    }
}

/// Create a session
///
/// The shell of the session starts with its first command. Creates the sandbox if it does not
/// exist.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/sessions", operation_id = "sessions_create", tag = "sessions",
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = CreateSession, example = json!({"id": "dev", "cwd": "project", "env": {"MODE": "test"}})),
    responses(
        (status = 201, description = "The session was created.", body = SessionView, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")))
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: StrictJson<CreateSession>,
) -> Result<Response, ApiError> {
    let route = format!("POST /v1/sandboxes/{}/sessions", ids.sandbox);
    let once = idempotency_key(&headers, &route, &body.raw)?;
    let wish = body.value.wish()?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::CreateIfMissing).await?;
    let (info, replayed) = sandbox.session_create(wish, once).await?;
    let location = format!("/v1/sandboxes/{}/sessions/{}", ids.sandbox, info.id);
    Ok(created(&location, replayed, Json(SessionView::from(info))))
}

/// List sessions
///
/// Returns the sessions of a sandbox sorted by id, including `default`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/sessions", operation_id = "sessions_list", tag = "sessions",
    params(
        ("id" = String, Path),
        ("limit" = Option<u64>, Query),
        ("cursor" = Option<String>, Query)
    ),
    responses(
        (status = 200, description = "One page of sessions.", body = Vec<SessionView>, headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one.")))
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Response, ApiError> {
    let paging = Pagination::of(&uri, PAGE)?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let page = paging.cut(sandbox.sessions(), |one| one.id.as_str());
    let path = format!("/v1/sandboxes/{}/sessions", ids.sandbox);
    Ok(paging.answer::<_, SessionView>(&path, page))
}

/// Get a session
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/sessions/{sid}", operation_id = "sessions_get", tag = "sessions",
    params(
        ("id" = String, Path),
        ("sid" = String, Path)
    ),
    responses(
        (status = 200, description = "The session.", body = SessionView)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<SessionView>, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    Ok(Json(SessionView::from(sandbox.session(ids.session()?)?)))
}

/// Update a session
///
/// Changes every field in the body, or none of them if one is refused. Programs, background
/// processes, terminals and shells that start later see the changed environment. A shell that is open
/// keeps its variables: set them there with `export`. Does not wake a sleeping sandbox.
#[utoipa::path(
    patch, path = "/v1/sandboxes/{id}/sessions/{sid}", operation_id = "sessions_update", tag = "sessions",
    params(
        ("id" = String, Path),
        ("sid" = String, Path)
    ),
    request_body(content = ChangeSession, example = json!({"env": {"MODE": "release", "DEBUG": null}})),
    responses(
        (status = 200, description = "The session after the change.", body = SessionView)
    )
)]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<ChangeSession>,
) -> Result<Json<SessionView>, ApiError> {
    let patch = body.value.patch()?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    Ok(Json(SessionView::from(sandbox.session_change(ids.session()?, patch).await?)))
}

/// Delete a session
///
/// Ends the session and its shell. The session `default` cannot be deleted (409 `default_session`).
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/sessions/{sid}", operation_id = "sessions_delete", tag = "sessions",
    params(
        ("id" = String, Path),
        ("sid" = String, Path)
    ),
    responses(
        (status = 204, description = "The session was deleted.")
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<StatusCode, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    sandbox.session_delete(ids.session()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
