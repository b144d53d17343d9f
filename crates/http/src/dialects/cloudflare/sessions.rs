//! Sessions of the bridge, each with its own shell, directory and environment.

use crate::{
    app::App,
    auth::caller::Caller,
    dialects::cloudflare::{
        address::sandbox,
        error::{BridgeError, RefusalView},
    },
    foundation::{
        error::ApiError,
        input,
        json::{StrictJson, UniqueMap, not_null},
        time::{now_ms, rfc3339},
    },
};
use axum::{
    Json,
    extract::{Path, State},
};
use isolet_sandbox::{SessionId, SessionSpec, ids, service::Access};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a session is to be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BridgeSession {
    /// The server makes one unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// Where its shell begins; `/workspace` unless told.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Over the sandbox's environment.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    env: UniqueMap<String>,
}

/// A session that was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct BridgeMade {
    /// For the header `Session-Id`.
    id: String,
}

/// A session that was ended.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BridgeEnded {
    success: bool,
    session_id: String,
    /// RFC 3339.
    timestamp: String,
}

/// Makes a session, and the sandbox where it is not there.
#[utoipa::path(post, path = "/v1/sandbox/{id}/session", tag = "cloudflare", request_body = BridgeSession,
    params(("id" = String, Path)),
    responses((status = 200, body = BridgeMade), (status = "4XX", body = RefusalView)))]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    body: Result<StrictJson<BridgeSession>, ApiError>,
) -> Result<Json<BridgeMade>, BridgeError> {
    let id = sandbox(&id)?;
    let body = body?.value;
    input::cwd(body.cwd.as_deref())?;
    input::env(body.env.0.iter().map(|(name, value)| (name, Some(value))))?;
    let session = body.id.unwrap_or_else(|| format!("sess_{}", ids::random()));
    let session = SessionId::parse(&session).map_err(input::bad_id)?;
    let wish =
        SessionSpec { id: Some(session), cwd: body.cwd, env: body.env.0, ..SessionSpec::default() };
    let sandbox = app.service.reach(&caller.tenant, &id, Access::CreateIfMissing).await?;
    let (info, _) = sandbox.session_create(wish, None).await?;
    Ok(Json(BridgeMade { id: info.id.into() }))
}

/// Ends a session and its shell. `default` cannot be deleted.
#[utoipa::path(delete, path = "/v1/sandbox/{id}/session/{sid}", tag = "cloudflare",
    params(("id" = String, Path), ("sid" = String, Path)),
    responses((status = 200, body = BridgeEnded), (status = "4XX", body = RefusalView)))]
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
