//! SWE-ReX's server, for its unmodified `RemoteRuntime`, with which SWE-agent runs commands.
//!
//! The client gets the address `/v1/swerex/{id}` of an existing sandbox as its host. What its code
//! raises on the server's side is sent as an exception, see [`error`].

pub(crate) mod error;
mod execute;
mod files;
pub(crate) mod routes;
mod run;
mod sessions;
mod upload;

use crate::app::App;
use crate::foundation::error::ApiError;
use axum::http::StatusCode;
use axum::routing::{any, get, post};
use error::SwerexError;
use utoipa_axum::router::OpenApiRouter;

/// Every route. SWE-ReX's package describes them, so the OpenAPI document of this server does not.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/swerex/{id}/is_alive", get(sessions::is_alive))
        .route("/v1/swerex/{id}/create_session", post(sessions::create))
        .route("/v1/swerex/{id}/close_session", post(sessions::delete))
        .route("/v1/swerex/{id}/close", post(sessions::delete_all))
        .route("/v1/swerex/{id}/run_in_session", post(run::run))
        .route("/v1/swerex/{id}/execute", post(execute::execute))
        .route("/v1/swerex/{id}/read_file", post(files::read))
        .route("/v1/swerex/{id}/write_file", post(files::write))
        .route("/v1/swerex/{id}/upload", post(upload::upload))
        .route("/v1/swerex/{id}/{*path}", any(unknown))
}

async fn unknown() -> SwerexError {
    ApiError::new(StatusCode::NOT_FOUND, "no_route", "SWE-ReX has no such call", "").into()
}
