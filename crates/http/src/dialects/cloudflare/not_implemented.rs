//! Routes of the bridge that are not implemented, each with its reason.

use crate::app::App;
use crate::dialects::cloudflare::address::sandbox;
use crate::dialects::cloudflare::error::BridgeError;
use crate::foundation::error::ApiError;
use axum::extract::RawPathParams;
use axum::routing::post;
use utoipa_axum::router::OpenApiRouter;

const MOUNTS: &str = "buckets are not mounted: a sandbox has no FUSE; write the files instead";

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/sandbox/{id}/mount", post(|id| unbuilt(id, MOUNTS)))
        .route("/v1/sandbox/{id}/unmount", post(|id| unbuilt(id, MOUNTS)))
}

async fn unbuilt(of: RawPathParams, reason: &str) -> BridgeError {
    let id = of.iter().find(|(name, _)| *name == "id").map_or("", |(_, id)| id);
    match sandbox(id) {
        Ok(_) => ApiError::not_implemented(reason).into(),
        Err(refusal) => refusal,
    }
}
