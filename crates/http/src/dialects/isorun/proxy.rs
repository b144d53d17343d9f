//! `url(port, path)` of the client: forwards requests to a port inside a run.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::routes::ports::{PortPath, any_method, forward_to_port};
use axum::extract::{Request, State};
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(any_method(routes!(root), root))
        .routes(any_method(routes!(slash), slash))
        .routes(any_method(routes!(below), below))
}

/// Forward a request to a port of a run, without a path
///
/// The same as `/v1/runs/{id}/proxy/{port}/`.
#[utoipa::path(
    get, path = "/v1/runs/{id}/proxy/{port}", operation_id = "runs_forward_root", tag = "isorun",
    params(
        ("id" = String, Path),
        ("port" = u16, Path)
    ),
    responses(
        (status = "default", description = "The response of the program."),
        (status = 401, description = "The request carries no valid key.", body = ApiError),
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

/// Forward a request to a port of a run
///
/// Accepts every method. Passes on HTTP requests, WebSockets and server-sent events.
#[utoipa::path(
    get, path = "/v1/runs/{id}/proxy/{port}/", operation_id = "runs_forward", tag = "isorun",
    params(
        ("id" = String, Path),
        ("port" = u16, Path)
    ),
    responses(
        (status = "default", description = "The response of the program."),
        (status = 401, description = "The request carries no valid key.", body = ApiError),
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

/// Forward a request to a path of a port of a run
///
/// The same as `/v1/runs/{id}/proxy/{port}/`, with a path.
#[utoipa::path(
    get, path = "/v1/runs/{id}/proxy/{port}/{*path}", operation_id = "runs_forward_path", tag = "isorun",
    params(
        ("id" = String, Path),
        ("port" = u16, Path),
        ("path" = String, Path, description = "The path of the program. Sent on as it is.")
    ),
    responses(
        (status = "default", description = "The response of the program."),
        (status = 401, description = "The request carries no valid key.", body = ApiError),
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
