//! Whether the server answers. Needs no key, so it reveals nothing else.

use crate::app::App;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// The state of the server.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`; `stopping` while the server shuts down; `broken` if the disk that holds its records
    /// has failed.
    status: &'static str,
    /// Whether `status` is `ok`.
    ok: bool,
    /// The version of the server.
    version: &'static str,
    /// How snapshots are stored, by the file system of the data directory: `btrfs`, `reflink` or
    /// `layers`.
    storage: &'static str,
}

/// Report whether the server is ready
///
/// Needs no key, so it reveals nothing about tenants. Answers 503 while the server cannot write its
/// records.
#[utoipa::path(
    get, path = "/health", operation_id = "server_health", tag = "server",
    responses(
        (status = 200, description = "The server answers. `status` is `ok`, or `stopping` while it shuts down.", body = Health),
        (status = 503, description = "The disk that holds the records has failed. Sandboxes keep running, but nothing can be recorded until the server is restarted.", body = Health)
    )
)]
pub(crate) async fn health(State(app): State<App>) -> (StatusCode, Json<Health>) {
    let (code, status) = match (app.service.broken(), app.cancellations.is_stopping()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "broken"),
        (false, true) => (StatusCode::OK, "stopping"),
        (false, false) => (StatusCode::OK, "ok"),
    };
    let health = Health {
        status,
        ok: status == "ok",
        version: env!("CARGO_PKG_VERSION"),
        storage: app.service.storage().word(),
    };
    (code, Json(health))
}
