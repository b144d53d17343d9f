//! `url(port, path)` of the client: forwards requests to a port inside a run.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::error::ApiError,
    routes::ports::{PortPath, any_method, forward_to_port},
};
use axum::{
    extract::{Request, State},
    response::Response,
};
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(any_method(routes!(root), root))
        .routes(any_method(routes!(slash), slash))
        .routes(any_method(routes!(below), below))
}

/// As `/v1/runs/{id}/proxy/{port}/`.
#[utoipa::path(get, path = "/v1/runs/{id}/proxy/{port}", tag = "isorun",
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

/// Sends a request of any method to a port inside a run: HTTP, WebSocket, server-sent events.
#[utoipa::path(get, path = "/v1/runs/{id}/proxy/{port}/", tag = "isorun",
    params(("id" = String, Path), ("port" = u16, Path)),
    responses((status = "default", description = "What the program answers."), (status = 502, body = ApiError)))]
pub(crate) async fn slash(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
    request: Request,
) -> Result<Response, ApiError> {
    forward_to_port(app, caller, at, request).await
}

/// As `/v1/runs/{id}/proxy/{port}/`, for all that is below.
#[utoipa::path(get, path = "/v1/runs/{id}/proxy/{port}/{*path}", tag = "isorun",
    params(("id" = String, Path), ("port" = u16, Path), ("path" = String, Path)),
    responses((status = "default", description = "What the program answers."), (status = 502, body = ApiError)))]
pub(crate) async fn below(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
    request: Request,
) -> Result<Response, ApiError> {
    forward_to_port(app, caller, at, request).await
}
