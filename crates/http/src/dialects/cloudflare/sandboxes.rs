//! Sandboxes of the bridge: create, delete, check whether one runs.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::cloudflare::address::sandbox;
use crate::dialects::cloudflare::error::BridgeError;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::{AuditedSandbox, ClaimedId};
use crate::foundation::json::StrictJson;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use isolet_sandbox::{Error, SandboxSpec, State as Stands, ids};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The settings of a new sandbox. It has none.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BridgeCreateSandbox)]
pub(crate) struct BridgeCreate {}

/// A sandbox that was created.
#[derive(Serialize, ToSchema)]
pub(crate) struct BridgeSandbox {
    /// The id: 26 characters of `[a-z2-7]`.
    id: String,
}

/// Whether a sandbox is available.
#[derive(Serialize, ToSchema)]
#[schema(as = BridgeRunning)]
pub(crate) struct BridgeRunning {
    /// Whether it runs, or sleeps with its files.
    running: bool,
}

/// Create a sandbox
#[utoipa::path(
    post, path = "/v1/sandbox", operation_id = "cloudflare_sandboxes_create", tag = "cloudflare",
    request_body = BridgeCreate,
    responses(
        (status = 200, description = "The id of the new sandbox.", body = BridgeSandbox)
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    claimed: Option<Extension<ClaimedId>>,
    body: Result<StrictJson<BridgeCreate>, ApiError>,
) -> Result<(Extension<AuditedSandbox>, Json<BridgeSandbox>), BridgeError> {
    body?;
    let mut wish = ClaimedId::complete(claimed, SandboxSpec::default());
    if wish.id.is_none() {
        wish.id = Some(sandbox(&ids::random())?);
    }
    let made = app.service.create(&caller.tenant, wish, None).await?;
    let of = Extension(AuditedSandbox(made.info.id.clone()));
    Ok((of, Json(BridgeSandbox { id: made.info.id.into() })))
}

/// Delete a sandbox
///
/// Answers 204 also if there is no such sandbox.
#[utoipa::path(
    delete, path = "/v1/sandbox/{id}", operation_id = "cloudflare_sandboxes_delete", tag = "cloudflare",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 204, description = "There is no such sandbox any more.")
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, BridgeError> {
    match app.service.delete(&caller.tenant, &sandbox(&id)?).await {
        Ok(_) | Err(Error::NoSandbox(_)) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(error.into()),
    }
}

/// Report whether a sandbox is available
///
/// A sleeping sandbox that keeps its files counts as running, because the next call wakes it, and so
/// does a paused one with `auto_resume`. This call neither wakes nor resumes it.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/running", operation_id = "cloudflare_sandboxes_running", tag = "cloudflare",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "Whether the sandbox is available.", body = BridgeRunning)
    )
)]
pub(crate) async fn running(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<BridgeRunning>, BridgeError> {
    let running = match app.service.get(&caller.tenant, &sandbox(&id)?).await {
        Ok(info) => match info.state {
            Stands::Running | Stands::Creating => true,
            Stands::Sleeping => info.persistent,
            Stands::Paused => info.auto_resume,
            _ => false,
        },
        Err(Error::NoSandbox(_)) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(Json(BridgeRunning { running }))
}
