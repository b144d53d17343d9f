//! Whether the server answers. Needs no key, so it reveals nothing else.

use crate::app::App;
use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// The server's word.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, `stopping`, or `broken`: the disk of the records has failed, and nothing is recorded
    /// until the server is started anew.
    status: &'static str,
    /// Whether `status` is `ok`.
    ok: bool,
    /// Of the server.
    version: &'static str,
}

/// Whether the server answers.
#[utoipa::path(get, path = "/health", tag = "server", security(()),
    responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(crate) async fn health(State(app): State<App>) -> (StatusCode, Json<Health>) {
    let (code, status) = match (app.service.broken(), app.cancellations.is_stopping()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "broken"),
        (false, true) => (StatusCode::OK, "stopping"),
        (false, false) => (StatusCode::OK, "ok"),
    };
    (code, Json(Health { status, ok: status == "ok", version: env!("CARGO_PKG_VERSION") }))
}
