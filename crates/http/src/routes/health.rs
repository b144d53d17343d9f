//! Whether the server answers. Needs no key, so it says nothing else.

use crate::server::App;
use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

/// The server's word.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or `stopping`.
    status: &'static str,
    /// Of the server.
    version: &'static str,
}

/// Whether the server answers.
#[utoipa::path(get, path = "/health", tag = "server", security(()),
    responses((status = 200, body = Health)))]
pub(crate) async fn health(State(app): State<App>) -> Json<Health> {
    let status = if app.leases.stopping() { "stopping" } else { "ok" };
    Json(Health { status, version: env!("CARGO_PKG_VERSION") })
}
