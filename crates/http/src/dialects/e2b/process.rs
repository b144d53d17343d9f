//! The service `process.Process`: commands are background processes of the sandbox, and PTYs are
//! terminals of sessions of their own.

mod calls;
mod events;
mod input;
mod pty;
mod pty_users;
mod select;
mod start;

use crate::app::App;
use crate::dialects::e2b::connect::{Code, RpcError};
use axum::extract::RawPathParams;
use axum::routing::{any, post};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/e2b/{id}/process.Process/Start", post(start::start))
        .route("/v1/e2b/{id}/process.Process/Connect", post(start::connect))
        .route("/v1/e2b/{id}/process.Process/List", post(calls::list))
        .route("/v1/e2b/{id}/process.Process/Update", post(calls::update))
        .route("/v1/e2b/{id}/process.Process/SendInput", post(input::send))
        .route("/v1/e2b/{id}/process.Process/StreamInput", post(input::stream))
        .route("/v1/e2b/{id}/process.Process/SendSignal", post(calls::signal))
        .route("/v1/e2b/{id}/process.Process/CloseStdin", post(input::close))
        .route("/v1/e2b/{id}/process.Process/{method}", any(unknown))
}

/// A method that the service does not have.
pub(super) async fn unknown(path: RawPathParams) -> RpcError {
    let method = path.iter().find(|(name, _)| *name == "method").map_or("", |(_, method)| method);
    let method: String = method.chars().take(64).collect();
    RpcError::new(Code::Unimplemented, format!("there is no method {method}"))
}
