//! Tunnels of the bridge: signed links to a port, as `/v1/sandboxes/{id}/links` creates them.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::port_link::TTL_MAX;
use crate::dialects::cloudflare::address::sandbox;
use crate::dialects::cloudflare::error::BridgeError;
use crate::foundation::base_url::BaseUrl;
use crate::foundation::error::ApiError;
use crate::foundation::json::{SmallJson, not_null};
use crate::proxy::target::parse_port;
use crate::routes::ports::links::{self, LinkSettings};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use isolet_sandbox::Error;
use isolet_sandbox::service::Access;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The settings of a new tunnel.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = BridgeCreateTunnel)]
pub(crate) struct BridgeTunnel {
    /// The name of the tunnel, at most 128 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
}

/// A tunnel to a port.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BridgeTunnel)]
pub(crate) struct Tunnel {
    /// The id, which is the port as text.
    id: String,
    /// The port, 1 to 65535.
    port: u16,
    /// The URL. Everybody who has it can use the port, for 30 days.
    url: String,
    /// The host name in the URL.
    hostname: String,
    /// The name of the tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    name: Option<String>,
    /// When it was created, as in RFC 3339.
    created_at: String,
}

/// Open a tunnel to a port
///
/// A tunnel is a signed link that is valid for 30 days. Creates the sandbox if it does not exist.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/tunnel/{port}", operation_id = "cloudflare_tunnels_open", tag = "cloudflare",
    params(
        ("id" = String, Path),
        ("port" = u16, Path)
    ),
    request_body = BridgeTunnel,
    responses(
        (status = 200, description = "The tunnel.", body = Tunnel)
    )
)]
pub(crate) async fn open(
    State(app): State<App>,
    caller: Caller,
    Path((id, port)): Path<(String, String)>,
    base: BaseUrl,
    body: Result<SmallJson<BridgeTunnel>, ApiError>,
) -> Result<Json<Tunnel>, BridgeError> {
    let id = sandbox(&id)?;
    let port = parse_port(&port)?;
    let wish = body?.value;
    app.service.reach(&caller.tenant, &id, Access::CreateIfMissing).await?;
    let settings = LinkSettings { port, name: wish.name, ttl: TTL_MAX, token: None };
    let link = links::make(&app, &caller, &id, settings, &base).await?;
    let host = link.url.parse::<Uri>().ok().and_then(|url| url.host().map(str::to_owned));
    let url = link.url;
    let name = link.name;
    let created_at = link.created_at;
    let hostname = host.unwrap_or_default();
    Ok(Json(Tunnel { id: port.to_string(), port, url, hostname, name, created_at }))
}

/// Close the tunnel to a port
///
/// Answers 204 also if there is no tunnel.
#[utoipa::path(
    delete, path = "/v1/sandbox/{id}/tunnel/{port}", operation_id = "cloudflare_tunnels_close", tag = "cloudflare",
    params(
        ("id" = String, Path),
        ("port" = u16, Path)
    ),
    responses(
        (status = 204, description = "There is no tunnel to the port any more.")
    )
)]
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
