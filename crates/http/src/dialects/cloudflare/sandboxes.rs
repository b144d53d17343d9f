//! Sandboxes of the bridge: create, delete, check whether one runs.

use crate::{
    app::App,
    auth::caller::Caller,
    dialects::cloudflare::{
        address::sandbox,
        error::{BridgeError, RefusalView},
    },
    foundation::{error::ApiError, extensions::AuditedSandbox, json::StrictJson},
};
use axum::{
    Extension, Json,
    extract::{Path, State},
    http::StatusCode,
};
use isolet_sandbox::{Error, SandboxSpec, State as Stands, ids};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Nothing can be said of it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BridgeCreate {}

/// A sandbox.
#[derive(Serialize, ToSchema)]
pub(crate) struct BridgeSandbox {
    /// 26 of `[a-z2-7]`.
    id: String,
}

/// Whether a sandbox is there.
#[derive(Serialize, ToSchema)]
pub(crate) struct Running {
    running: bool,
}

/// Makes a sandbox.
#[utoipa::path(post, path = "/v1/sandbox", tag = "cloudflare", request_body = BridgeCreate,
    responses((status = 200, body = BridgeSandbox), (status = "4XX", body = RefusalView), (status = "5XX", body = RefusalView)))]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    body: Result<StrictJson<BridgeCreate>, ApiError>,
) -> Result<(Extension<AuditedSandbox>, Json<BridgeSandbox>), BridgeError> {
    body?;
    let id = sandbox(&ids::random())?;
    let wish = SandboxSpec { id: Some(id), ..SandboxSpec::default() };
    let made = app.service.create(&caller.tenant, wish, None).await?;
    let of = Extension(AuditedSandbox(made.info.id.clone()));
    Ok((of, Json(BridgeSandbox { id: made.info.id.into() })))
}

/// Ends a sandbox and everything in it; 204 also when nothing is there.
#[utoipa::path(delete, path = "/v1/sandbox/{id}", tag = "cloudflare", params(("id" = String, Path)),
    responses((status = 204), (status = "4XX", body = RefusalView)))]
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

/// Whether a sandbox is there with what was put in it.
///
/// One that sleeps and keeps its files is: the next call finds it so. It is not woken for this.
#[utoipa::path(get, path = "/v1/sandbox/{id}/running", tag = "cloudflare", params(("id" = String, Path)),
    responses((status = 200, body = Running), (status = "4XX", body = RefusalView)))]
pub(crate) async fn running(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Running>, BridgeError> {
    let running = match app.service.get(&caller.tenant, &sandbox(&id)?).await {
        Ok(info) => match info.state {
            Stands::Running | Stands::Creating => true,
            Stands::Sleeping => info.persistent,
            _ => false,
        },
        Err(Error::NoSandbox(_)) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(Json(Running { running }))
}
