//! Tunnels of the bridge: signed links to a port, as `/v1/sandboxes/{id}/links` creates them.

use crate::{
    app::App,
    auth::{caller::Caller, port_link::TTL_MAX},
    dialects::cloudflare::{
        address::sandbox,
        error::{BridgeError, RefusalView},
    },
    foundation::{
        error::ApiError,
        json::{StrictJson, not_null},
    },
    proxy::target::parse_port,
    routes::ports::links,
};
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, Uri},
};
use isolet_sandbox::{Error, service::Access};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a tunnel is to be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BridgeTunnel {
    /// What it is called, at most 128 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
}

/// A way from outside to a port.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tunnel {
    /// A sandbox has one for each port: the port as text.
    id: String,
    /// 1 to 65535.
    port: u16,
    /// Who has it, has the right to the port; for 30 days.
    url: String,
    /// The host in it.
    hostname: String,
    /// As it was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// RFC 3339.
    created_at: String,
}

/// Opens a tunnel to a port, and makes the sandbox where it is not there.
#[utoipa::path(post, path = "/v1/sandbox/{id}/tunnel/{port}", tag = "cloudflare",
    request_body = BridgeTunnel, params(("id" = String, Path), ("port" = u16, Path)),
    responses((status = 200, body = Tunnel), (status = "4XX", body = RefusalView)))]
pub(crate) async fn open(
    State(app): State<App>,
    caller: Caller,
    Path((id, port)): Path<(String, String)>,
    headers: HeaderMap,
    body: Result<StrictJson<BridgeTunnel>, ApiError>,
) -> Result<Json<Tunnel>, BridgeError> {
    let id = sandbox(&id)?;
    let port = parse_port(&port)?;
    let wish = body?.value;
    app.service.reach(&caller.tenant, &id, Access::CreateIfMissing).await?;
    let link = links::make(&app, &caller, &id, port, wish.name, TTL_MAX, &headers).await?;
    let host = link.url.parse::<Uri>().ok().and_then(|url| url.host().map(str::to_owned));
    let url = link.url;
    let name = link.name;
    let created_at = link.created_at;
    let hostname = host.unwrap_or_default();
    Ok(Json(Tunnel { id: port.to_string(), port, url, hostname, name, created_at }))
}

/// Closes a tunnel; 204 also when there is none.
#[utoipa::path(delete, path = "/v1/sandbox/{id}/tunnel/{port}", tag = "cloudflare",
    params(("id" = String, Path), ("port" = u16, Path)),
    responses((status = 204), (status = "4XX", body = RefusalView)))]
pub(crate) async fn close(
    State(app): State<App>,
    caller: Caller,
    Path((id, port)): Path<(String, String)>,
) -> Result<StatusCode, BridgeError> {
    match app.service.hide(&caller.tenant, &sandbox(&id)?, parse_port(&port)?).await {
        Ok(()) | Err(Error::NoSandbox(_) | Error::NotExposed { .. }) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(error.into()),
    }
}
