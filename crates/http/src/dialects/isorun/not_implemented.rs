//! Routes of Isorun that are not implemented, each with its reason.

use crate::app::App;
use crate::routes::not_implemented::not_implemented;
use axum::routing::post;
use utoipa_axum::router::OpenApiRouter;

const HIBERNATE: &str = "hibernation is not built yet; a run keeps its processes until it ends";

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/runs/{id}/hibernate", not_implemented!(post, HIBERNATE))
        .route("/v1/runs/{id}/resume", not_implemented!(post, HIBERNATE))
}
