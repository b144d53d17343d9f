//! Isorun's calls that are not built yet: each says so.

use crate::{app::App, routes::not_implemented::says};
use axum::routing::{delete, get, post};
use utoipa_axum::router::OpenApiRouter;

const SNAPSHOTS: &str = "snapshots, forks and restores are not built yet";
const HIBERNATE: &str = "hibernation is not built yet; a run keeps its processes until it ends";

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/runs/{id}/snapshot", says!(post, SNAPSHOTS))
        .route("/v1/runs/{id}/fork", says!(post, SNAPSHOTS))
        .route("/v1/runs/restore", says!(post, SNAPSHOTS))
        .route("/v1/snapshots", says!(get, SNAPSHOTS))
        .route("/v1/snapshots/{id}", says!(delete, SNAPSHOTS))
        .route("/v1/runs/{id}/hibernate", says!(post, HIBERNATE))
        .route("/v1/runs/{id}/resume", says!(post, HIBERNATE))
}
