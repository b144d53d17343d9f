//! Signed links to ports: create, list by port, withdraw; and requests below a link's own path.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::link_token;
use crate::auth::port_link::{self, Purpose, SignedLink};
use crate::foundation::base_url::BaseUrl;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Proxied;
use crate::foundation::input::PathIds;
use crate::foundation::json::{SmallJson, not_null, port};
use crate::foundation::query::Query;
use crate::proxy::target::{TOKEN, Target, UrlKind, parse_port};
use crate::proxy::{forward, host_name};
use crate::routes::ports::PortPath;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Json, Router};
use isolet_clock::rfc3339;
use isolet_sandbox::exposed_ports::ExposedPort;
use isolet_sandbox::exposed_ports::link_token::{LinkToken, NewLinkToken};
use isolet_sandbox::{SandboxId, TenantId};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The default lifetime of a link, in seconds: an hour.
const TTL_S: u64 = 3600;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(withdraw))
}

/// The routes of requests below a link's own path. No key is needed: the path is itself the right.
pub(crate) fn link_router() -> Router<App> {
    Router::new()
        .route("/v1/links/{token}", any(open_link))
        .route("/v1/links/{token}/", any(open_link))
        .route("/v1/links/{token}/{*path}", any(open_link))
}

/// The settings of a new link.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = CreateLink)]
pub(crate) struct MakeLink {
    /// The port, 1 to 65535. No program needs to listen on it yet.
    #[serde(deserialize_with = "port")]
    #[schema(required = true)]
    port: u16,
    /// The lifetime in seconds, at most 2592000 (30 days). Defaults to 3600.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
    /// The name of the port in lists, at most 128 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    /// A token of your choice, so that the URL stays the same when you create the link again: 16 to
    /// 64 characters of `A-Z`, `a-z`, `0-9`, `-` and `_`. Everybody who guesses it can use the port.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false, write_only, min_length = 16, max_length = 64)]
    token: Option<String>,
}

/// A port that links lead to.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LinkedPort)]
pub(crate) struct ExposedView {
    /// The port inside the sandbox.
    port: u16,
    /// The name of the port, if it has one.
    #[schema(required = true)]
    name: Option<String>,
    /// Its URL, without the token that gives access.
    url: String,
    /// When the first link to it was created, as in RFC 3339.
    created_at: String,
}

/// A signed link to a port. Everybody who has it can use the port.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Link)]
pub(crate) struct LinkView {
    /// The port inside the sandbox.
    port: u16,
    /// The name of the port.
    #[schema(required = true)]
    pub(crate) name: Option<String>,
    /// The URL, which contains the token.
    pub(crate) url: String,
    /// The token alone, for `?isolet-token=` on the host name of the port. It contains the token that
    /// you chose: `~TENANT~SANDBOX~PORT~CHOSEN`.
    token: String,
    /// When the link expires, as in RFC 3339.
    expires_at: String,
    /// When the first link to the port was created, as in RFC 3339.
    pub(crate) created_at: String,
}

/// Create a signed link to a port
///
/// Gives a client without a key access to one port: a browser, a webhook. The link is valid until
/// its time is over, the key that created it is revoked, the links of the port are revoked, or the
/// sandbox is deleted. If the server has a domain for ports, the link leads to a host name of the
/// port; otherwise it leads below `/v1/links/`, where pages have an opaque origin.
///
/// With `token`, the URL contains a token of your choice. The same key may create the link again: it
/// keeps its URL, and is valid for the new lifetime. Another key that chooses the same token for the
/// port gets 409 `link_token_in_use`.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/links", operation_id = "links_create", tag = "ports",
    params(
        ("id" = String, Path)
    ),
    request_body(content = MakeLink, example = json!({"port": 8080, "ttl_s": 3600, "name": "preview"})),
    responses(
        (status = 201, description = "The link.", body = LinkView),
        (status = 409, description = "`link_token_in_use`: another key chose this token for the port.", body = ApiError)
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    base: BaseUrl,
    body: SmallJson<MakeLink>,
) -> Result<(StatusCode, Json<LinkView>), ApiError> {
    let wish = body.value;
    let port = parse_port(&wish.port.to_string())?;
    let ttl = Duration::from_secs(wish.ttl_s.unwrap_or(TTL_S));
    if ttl.is_zero() || ttl > port_link::TTL_MAX {
        return Err(ApiError::bad_field("ttl_s", "1 to 2592000"));
    }
    let token = wish.token.as_deref().map(LinkToken::parse).transpose();
    let token = token.map_err(isolet_sandbox::Error::from)?;
    let settings = LinkSettings { port, name: wish.name, ttl, token };
    let link = make(&app, &caller, &ids.sandbox, settings, &base).await?;
    Ok((StatusCode::CREATED, Json(link)))
}

/// What a new link is like.
pub(crate) struct LinkSettings {
    pub(crate) port: u16,
    /// The name of the port.
    pub(crate) name: Option<String>,
    pub(crate) ttl: Duration,
    /// The token that the client chose.
    pub(crate) token: Option<LinkToken>,
}

/// Creates a link to a port of a sandbox.
pub(crate) async fn make(
    app: &App,
    caller: &Caller,
    sandbox: &SandboxId,
    settings: LinkSettings,
    base: &BaseUrl,
) -> Result<LinkView, ApiError> {
    let LinkSettings { port, name, ttl, token: chosen } = settings;
    let expires_s = port_link::expiry_s(port_link::since_epoch() + ttl);
    let new = chosen.clone().map(|token| {
        let key = caller.key.clone();
        NewLinkToken { token, key, expires_s }
    });
    let exposed = app.service.expose(&caller.tenant, sandbox, port, name, new).await?;
    let token = match &chosen {
        Some(chosen) => link_token::text(&caller.tenant, sandbox, port, chosen),
        None => {
            let (life, _) = app.service.exposed(&caller.tenant, sandbox)?;
            let caller = caller.clone();
            let sandbox = sandbox.clone();
            let purpose = Purpose::Program;
            let link = SignedLink { purpose, caller, sandbox, port, expires_s };
            link.token(&exposed.secret, &life)
        }
    };
    let links = LinkBase { app, base, tenant: &caller.tenant, id: sandbox };
    let (url, own) = links.url(port);
    let url = match own {
        true => format!("{url}?{}={token}", TOKEN),
        false => format!("{}{}{token}/", base.origin(None), port_link::PATH_PREFIX),
    };
    let expires_at = rfc3339(i64::try_from(expires_s).unwrap_or(i64::MAX).saturating_mul(1000));
    let ExposedPort { name, created_at_ms, .. } = exposed;
    let created_at = rfc3339(created_at_ms);
    Ok(LinkView { port, name, url, token, expires_at, created_at })
}

/// List ports with links
///
/// Returns the ports that links lead to, sorted, without the links and their tokens.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/links", operation_id = "links_list", tag = "ports",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The ports.", body = Vec<ExposedView>)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
    base: BaseUrl,
) -> Result<Json<Vec<ExposedView>>, ApiError> {
    Query::of(&uri, &[])?;
    let (_, all) = app.service.exposed(&caller.tenant, &ids.sandbox)?;
    let links = LinkBase { app: &app, base: &base, tenant: &caller.tenant, id: &ids.sandbox };
    let all = all.into_iter().map(|(port, ExposedPort { name, created_at_ms, .. })| {
        let created_at = rfc3339(created_at_ms);
        ExposedView { port, name, url: links.url(port).0, created_at }
    });
    Ok(Json(all.collect()))
}

/// Withdraw all links to a port
///
/// All links to the port become invalid.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/links/{port}", operation_id = "links_withdraw", tag = "ports",
    params(
        ("id" = String, Path),
        ("port" = u16, Path)
    ),
    responses(
        (status = 204, description = "The links are invalid.")
    )
)]
pub(crate) async fn withdraw(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
) -> Result<StatusCode, ApiError> {
    app.service.hide(&caller.tenant, &at.sandbox, at.port).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Builds the URLs of a sandbox's ports, as the client sees them.
struct LinkBase<'a> {
    app: &'a App,
    base: &'a BaseUrl,
    tenant: &'a TenantId,
    id: &'a SandboxId,
}

impl LinkBase<'_> {
    /// The URL of a port, and whether it is a host name of its own.
    fn url(&self, port: u16) -> (String, bool) {
        let label = host_name::label(self.tenant, self.id, port);
        match (self.app.ports_domain.as_deref(), label) {
            (Some(domain), Some(label)) => {
                (format!("{}/", self.base.origin(Some(&format!("{label}.{domain}")))), true)
            }
            _ => (
                format!("{}/v1/sandboxes/{}/ports/{port}/", self.base.origin(None), self.id),
                false,
            ),
        }
    }
}

/// Forwards a request below a link, which the server has already verified.
async fn open_link(
    State(app): State<App>,
    Extension(link): Extension<SignedLink>,
    request: Request,
) -> Result<Response, ApiError> {
    let token = port_link::token_in_path(request.uri().path()).unwrap_or_default();
    let entry = UrlKind::Link(format!("{}{token}", port_link::PATH_PREFIX));
    let ends = Some(Instant::now() + link.time_left());
    let target = Target { sandbox: link.sandbox, port: link.port, entry, ends };
    let mut response = forward::forward(app, &link.caller, target, request).await?;
    response.extensions_mut().insert(Proxied { own_origin: false });
    Ok(response)
}
