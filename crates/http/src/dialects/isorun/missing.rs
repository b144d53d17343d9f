//! Isorun's calls that are not built yet: each says so.

use crate::{error::Failure, routes::missing::says, server::App};
use axum::routing::{delete, get, post};
use utoipa_axum::router::OpenApiRouter;

const SNAPSHOTS: &str = "snapshots, forks and restores are not built yet";
const HIBERNATE: &str = "hibernation is not built yet; a run keeps its processes until it ends";
const NETWORK: &str = "network profiles are not built yet; a run has loopback only";
const USAGE: &str = "usage of ended runs is not kept yet; a destroy answers with what the run used";

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/runs/{id}/snapshot", says!(post, SNAPSHOTS))
        .route("/v1/runs/{id}/fork", says!(post, SNAPSHOTS))
        .route("/v1/runs/restore", says!(post, SNAPSHOTS))
        .route("/v1/snapshots", says!(get, SNAPSHOTS))
        .route("/v1/snapshots/{id}", says!(delete, SNAPSHOTS))
        .route("/v1/runs/{id}/hibernate", says!(post, HIBERNATE))
        .route("/v1/runs/{id}/resume", says!(post, HIBERNATE))
        .route("/v1/network-profiles", says!(get, NETWORK))
        .route("/v1/usage", says!(get, USAGE))
        .route("/v1/runs/history", says!(get, USAGE))
}
