//! Ports of a sandbox: lists who listens, and forwards requests below a path.

pub(crate) mod links;
pub(crate) mod tcp;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::input::{self, PathIds};
use crate::foundation::query::Query;
use crate::proxy::forward;
use crate::proxy::target::{Target, UrlKind, parse_port};
use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::handler::Handler;
use axum::http::Uri;
use axum::http::request::Parts;
use axum::response::Response;
use isolet_sandbox::SandboxId;
use isolet_sandbox::service::Access;
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

/// A port on which a program listens.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListeningPort)]
pub(crate) struct PortView {
    /// The port, 1 to 65535.
    port: u16,
    /// The addresses that the program listens on. `0.0.0.0` and `::` stand for all addresses of the
    /// sandbox.
    #[schema(value_type = Vec<String>)]
    addresses: Vec<IpAddr>,
    /// The URL path under which the port can be reached with a key.
    path: String,
}

/// List listening ports
///
/// Returns the ports on which a program listens, sorted. A sleeping sandbox has none, and is not
/// woken.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ports", operation_id = "ports_list", tag = "ports",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The ports.", body = Vec<PortView>)
    )
)]
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

/// Forward a request to a port, without a path
///
/// The same as `/v1/sandboxes/{id}/ports/{port}/`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ports/{port}", operation_id = "ports_forward_root", tag = "ports",
    security(("bearer" = []), ("ticket" = [])),
    params(
        ("id" = String, Path),
        ("port" = u16, Path)
    ),
    responses(
        (status = "default", description = "The response of the program."),
        (status = 401, description = "The request carries no valid key or ticket.", body = ApiError),
        (status = 502, description = "No program listens on the port, or it closed the connection or answered with something other than HTTP.", body = ApiError)
    )
)]
pub(crate) async fn root(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
    request: Request,
) -> Result<Response, ApiError> {
    forward_to_port(app, caller, at, request).await
}

/// Forward a request to a port of a sandbox
///
/// Accepts every method. Request and response bodies are streamed, and WebSockets are passed
/// through. The program receives the path after the port, with `Host: localhost:PORT`. The server
/// removes its own key, cookies and the `Authorization` header from the request, and cookies from
/// the response. A page is shown with an opaque origin (CSP `sandbox`). Answers 502 `not_listening`
/// if no program listens on the port.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ports/{port}/", operation_id = "ports_forward", tag = "ports",
    security(("bearer" = []), ("ticket" = [])),
    params(
        ("id" = String, Path),
        ("port" = u16, Path)
    ),
    responses(
        (status = "default", description = "The response of the program."),
        (status = 401, description = "The request carries no valid key or ticket.", body = ApiError),
        (status = 502, description = "No program listens on the port, or it closed the connection or answered with something other than HTTP.", body = ApiError)
    )
)]
pub(crate) async fn slash(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
    request: Request,
) -> Result<Response, ApiError> {
    forward_to_port(app, caller, at, request).await
}

/// Forward a request to a path of a port
///
/// The same as `/v1/sandboxes/{id}/ports/{port}/`, with a path.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ports/{port}/{*path}", operation_id = "ports_forward_path", tag = "ports",
    security(("bearer" = []), ("ticket" = [])),
    params(
        ("id" = String, Path),
        ("port" = u16, Path),
        ("path" = String, Path, description = "The path of the program. Sent on as it is.")
    ),
    responses(
        (status = "default", description = "The response of the program."),
        (status = 401, description = "The request carries no valid key or ticket.", body = ApiError),
        (status = 502, description = "No program listens on the port, or it closed the connection or answered with something other than HTTP.", body = ApiError)
    )
)]
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
    let target = Target { sandbox, port, entry: UrlKind::Path(prefix), ends: None };
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
