//! Ports of a sandbox: lists who listens, and forwards requests below a path.

pub(crate) mod links;
pub(crate) mod tcp;

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        error::ApiError,
        input::{self, PathIds},
        query::Query,
    },
    proxy::{
        forward,
        target::{Entry, Target, parse_port},
    },
};
use axum::{
    Json,
    extract::{FromRequestParts, Request, State},
    handler::Handler,
    http::{Uri, request::Parts},
    response::Response,
};
use isolet_sandbox::{SandboxId, service::Access};
use serde::Serialize;
use std::net::IpAddr;
use utoipa::ToSchema;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

/// Parts of a path up to and including the port: `/v1/sandboxes/ID/ports/PORT`.
const PREFIX_PARTS: usize = 5;

/// The routes, which accept every method.
pub(crate) fn router() -> OpenApiRouter<App> {
    use utoipa_axum::routes;
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(any_method(routes!(root), root))
        .routes(any_method(routes!(slash), slash))
        .routes(any_method(routes!(below), below))
}

/// Documents GET and accepts every method.
pub(crate) fn any_method<H, T>(
    documented: UtoipaMethodRouter<App>,
    handler: H,
) -> UtoipaMethodRouter<App>
where
    H: Handler<T, App>,
    T: 'static,
{
    let (schemas, paths, _) = documented;
    // Not a fallback besides GET, which would add `Allow` to the program's response.
    (schemas, paths, axum::routing::any(handler))
}

/// A port on which something listens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PortView {
    /// 1 to 65535.
    port: u16,
    /// Addresses that it is bound to; `0.0.0.0` and `::` are all of the sandbox's.
    #[schema(value_type = Vec<String>)]
    addresses: Vec<IpAddr>,
    /// Where it is reached, with a key.
    path: String,
}

/// Lists the ports on which something listens, sorted. None of a sandbox that sleeps, which stays
/// asleep.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports", tag = "ports", params(("id" = String, Path)),
    responses((status = 200, body = Vec<PortView>), (status = "4XX", body = ApiError)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Vec<PortView>>, ApiError> {
    Query::of(&uri, &[])?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let mut all: Vec<PortView> = Vec::new();
    for one in sandbox.listening().await? {
        match all.last_mut().filter(|last| last.port == one.port) {
            Some(last) => last.addresses.push(one.address),
            None => all.push(PortView {
                port: one.port,
                addresses: vec![one.address],
                path: format!("/v1/sandboxes/{}/ports/{}/", sandbox.id(), one.port),
            }),
        }
    }
    Ok(Json(all))
}

/// As `/v1/sandboxes/{id}/ports/{port}/`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports/{port}", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path)),
    responses((status = "default", description = "What the program answers."), (status = 502, body = ApiError)))]
pub(crate) async fn root(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
    request: Request,
) -> Result<Response, ApiError> {
    forward_to_port(app, caller, at, request).await
}

/// Sends a request of any method to the program that listens on a port inside.
///
/// Bodies stream both ways, and a WebSocket is passed as it is. The program is asked for what follows
/// the port, under the name `localhost:PORT`; key, cookies and `Authorization` of this server stay
/// here. Its answer comes back without cookies, in a page that has the origin of nobody: a page that
/// needs more is reached by a host name of its own. 502 `not_listening` says who does listen.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports/{port}/", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path), ("ticket" = Option<String>, Query, description = "In place of a key, for a WebSocket.")),
    responses((status = "default", description = "What the program answers."), (status = 502, body = ApiError)))]
pub(crate) async fn slash(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
    request: Request,
) -> Result<Response, ApiError> {
    forward_to_port(app, caller, at, request).await
}

/// As `/v1/sandboxes/{id}/ports/{port}/`, for all that is below.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports/{port}/{*path}", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path), ("path" = String, Path), ("ticket" = Option<String>, Query, description = "In place of a key, for a WebSocket.")),
    responses((status = "default", description = "What the program answers."), (status = 502, body = ApiError)))]
pub(crate) async fn below(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
    request: Request,
) -> Result<Response, ApiError> {
    forward_to_port(app, caller, at, request).await
}

/// The sandbox and port in a path, and the path's prefix before the program's own path. Parsed from
/// the raw path, because a program's path need not be UTF-8.
pub(crate) struct PortPath {
    pub(crate) sandbox: SandboxId,
    pub(crate) port: u16,
    prefix: String,
}

impl PortPath {
    fn of(path: &str) -> Result<Self, ApiError> {
        let end = path.match_indices('/').nth(PREFIX_PARTS).map_or(path.len(), |(at, _)| at);
        let prefix = &path[..end];
        let mut parts = prefix.split('/').skip(3);
        let sandbox = SandboxId::parse(parts.next().unwrap_or_default()).map_err(input::bad_id)?;
        let port = parse_port(parts.nth(1).unwrap_or_default())?;
        Ok(Self { sandbox, port, prefix: prefix.to_owned() })
    }
}

impl<S: Sync> FromRequestParts<S> for PortPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::of(parts.uri.path())
    }
}

/// Forwards a request to the port in its path. Dialects use paths with as many parts.
pub(crate) async fn forward_to_port(
    app: App,
    caller: Caller,
    at: PortPath,
    request: Request,
) -> Result<Response, ApiError> {
    let PortPath { sandbox, port, prefix } = at;
    if caller.ticket_scope.as_ref().is_some_and(|scope| scope.port != Some(port)) {
        return Err(crate::auth::caller::bad_ticket());
    }
    let target = Target { sandbox, port, entry: Entry::Path(prefix), ends: None };
    forward::forward(app, &caller, target, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: O1.
    #[test]
    fn a_way_is_read_from_the_path_as_it_was_sent() {
        let of =
            |path: &str| PortPath::of(path).map(|at| (at.sandbox.to_string(), at.port, at.prefix));
        let prefix = "/v1/sandboxes/box/ports/80".to_owned();
        for rest in ["", "/", "/%ff//x", "/ports/90"] {
            let found = of(&format!("{prefix}{rest}")).unwrap();
            assert_eq!(found, ("box".to_owned(), 80, prefix.clone()), "{rest}");
        }
        assert_eq!(of("/v1/runs/r/proxy/1/x").unwrap().2, "/v1/runs/r/proxy/1");
        for bad in [
            "/v1/sandboxes/box/ports/080",
            "/v1/sandboxes/%62ox/ports/80",
            "/v1/sandboxes//ports/80",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
