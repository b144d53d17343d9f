//! `url(port, path)` of the client: the way to a port inside a run.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::error::Failure,
    routes::ports::{At, every, through},
};
use axum::{
    extract::{Request, State},
    response::Response,
};
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(every(routes!(root), root))
        .routes(every(routes!(slash), slash))
        .routes(every(routes!(below), below))
}

/// As `/v1/runs/{id}/proxy/{port}/`.
#[utoipa::path(get, path = "/v1/runs/{id}/proxy/{port}", tag = "isorun",
    params(("id" = String, Path), ("port" = u16, Path)),
    responses((status = "default", description = "What the program answers."), (status = 502, body = Failure)))]
pub(crate) async fn root(
    State(app): State<App>,
    caller: Caller,
    at: At,
    request: Request,
) -> Result<Response, Failure> {
    through(app, caller, at, request).await
}

/// Sends a request of any method to a port inside a run: HTTP, WebSocket, server-sent events.
#[utoipa::path(get, path = "/v1/runs/{id}/proxy/{port}/", tag = "isorun",
    params(("id" = String, Path), ("port" = u16, Path)),
    responses((status = "default", description = "What the program answers."), (status = 502, body = Failure)))]
pub(crate) async fn slash(
    State(app): State<App>,
    caller: Caller,
    at: At,
    request: Request,
) -> Result<Response, Failure> {
    through(app, caller, at, request).await
}

/// As `/v1/runs/{id}/proxy/{port}/`, for all that is below.
#[utoipa::path(get, path = "/v1/runs/{id}/proxy/{port}/{*path}", tag = "isorun",
    params(("id" = String, Path), ("port" = u16, Path), ("path" = String, Path)),
    responses((status = "default", description = "What the program answers."), (status = 502, body = Failure)))]
pub(crate) async fn below(
    State(app): State<App>,
    caller: Caller,
    at: At,
    request: Request,
) -> Result<Response, Failure> {
    through(app, caller, at, request).await
}
