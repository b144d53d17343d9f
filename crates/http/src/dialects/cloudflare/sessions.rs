//! Sessions of the bridge, each with its own shell, directory and environment.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::cloudflare::address::sandbox;
use crate::dialects::cloudflare::error::BridgeError;
use crate::foundation::error::ApiError;
use crate::foundation::input;
use crate::foundation::json::{StrictJson, UniqueMap, not_null};
use axum::Json;
use axum::extract::{Path, State};
use isolet_clock::{now_ms, rfc3339};
use isolet_sandbox::service::Access;
use isolet_sandbox::{Environment, SessionId, SessionSpec, ids};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The settings of a new session.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = BridgeCreateSession)]
pub(crate) struct BridgeSession {
    /// The id. Defaults to a generated id.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// Where its shell starts. Defaults to `/workspace`.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Environment variables, in addition to those of the sandbox.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    env: UniqueMap<String>,
}

/// A session that was created.
#[derive(Serialize, ToSchema)]
#[schema(as = BridgeSession)]
pub(crate) struct BridgeMade {
    /// The id. Send it in the header `Session-Id`.
    id: String,
}

/// The confirmation that a session was deleted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BridgeDeletedSession)]
pub(crate) struct BridgeEnded {
    /// Always `true`; a failure is an error response.
    success: bool,
    /// The id of the session.
    session_id: String,
    /// When it was deleted, as in RFC 3339.
    timestamp: String,
}

/// Create a session
///
/// Creates the sandbox if it does not exist.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/session", operation_id = "cloudflare_sessions_create", tag = "cloudflare",
    params(
        ("id" = String, Path)
    ),
    request_body = BridgeSession,
    responses(
        (status = 200, description = "The id of the session.", body = BridgeMade)
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    body: Result<StrictJson<BridgeSession>, ApiError>,
) -> Result<Json<BridgeMade>, BridgeError> {
    let id = sandbox(&id)?;
    let body = body?.value;
    let cwd = input::cwd(body.cwd)?;
    let env = Environment::parse(body.env.0)?;
    let session = body.id.unwrap_or_else(|| format!("sess_{}", ids::random()));
    let session = SessionId::parse(&session).map_err(input::bad_id)?;
    let wish = SessionSpec { id: Some(session), cwd, env, ..SessionSpec::default() };
    let sandbox = app.service.reach(&caller.tenant, &id, Access::CreateIfMissing).await?;
    let (info, _) = sandbox.session_create(wish, None).await?;
    Ok(Json(BridgeMade { id: info.id.into() }))
}

/// Delete a session
///
/// Ends the session and its shell. The session `default` cannot be deleted.
#[utoipa::path(
    delete, path = "/v1/sandbox/{id}/session/{sid}", operation_id = "cloudflare_sessions_delete", tag = "cloudflare",
    params(
        ("id" = String, Path),
        ("sid" = String, Path)
    ),
    responses(
        (status = 200, description = "The session was deleted.", body = BridgeEnded)
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path((id, sid)): Path<(String, String)>,
) -> Result<Json<BridgeEnded>, BridgeError> {
    let session = SessionId::parse(&sid).map_err(input::bad_id)?;
    let sandbox = app.service.reach(&caller.tenant, &sandbox(&id)?, Access::Look).await?;
    sandbox.session_delete(&session).await?;
    let timestamp = rfc3339(now_ms());
    Ok(Json(BridgeEnded { success: true, session_id: session.into(), timestamp }))
}
