//! Calls of the bridge that are not carried out: each says why.

use super::{Refusal, sandbox};
use crate::{error::Failure, server::App};
use axum::{extract::RawPathParams, routing::post};
use utoipa_axum::router::OpenApiRouter;

const MOUNTS: &str =
    "buckets are not mounted: a sandbox has no way out, and no FUSE; write the files instead";
const TUNNELS: &str = "tunnels are not built yet: nothing here is public; with a key a port is \
                       reached at /v1/sandboxes/{id}/ports/{port}/";
const POOL: &str = "the sandboxes that are made ahead are all tenants'; the server's configuration \
                    says how many (ready)";

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/sandbox/{id}/mount", post(|id| unbuilt(id, MOUNTS)))
        .route("/v1/sandbox/{id}/unmount", post(|id| unbuilt(id, MOUNTS)))
        .route(
            "/v1/sandbox/{id}/tunnel/{port}",
            post(|id| unbuilt(id, TUNNELS)).delete(|id| unbuilt(id, TUNNELS)),
        )
        .route(
            "/v1/pool/shutdown-prewarmed",
            post(|| async { Refusal::from(Failure::unbuilt_call(POOL)) }),
        )
}

async fn unbuilt(of: RawPathParams, reason: &str) -> Refusal {
    let id = of.iter().find(|(name, _)| *name == "id").map_or("", |(_, id)| id);
    match sandbox(id) {
        Ok(_) => Failure::unbuilt_call(reason).into(),
        Err(refusal) => refusal,
    }
}
