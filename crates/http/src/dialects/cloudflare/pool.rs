//! The bridge's view of the warm pool: sandboxes that this server creates in advance, for all
//! tenants.

use crate::{
    app::App,
    auth::caller::Caller,
    dialects::cloudflare::error::{Done, RefusalView},
};
use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

/// The stock.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolStats {
    /// Made ahead, for whoever comes.
    warm: usize,
    /// The caller's own sandboxes.
    assigned: usize,
    /// Both.
    total: usize,
    config: PoolConfig,
    /// How many the caller may have.
    max_instances: u32,
}

/// As the server is configured.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolConfig {
    /// So many are kept ready.
    warm_target: usize,
    /// Always 0: what is taken is made anew at once.
    refresh_interval: u64,
}

/// How many sandboxes are made ahead, and how many the caller has.
#[utoipa::path(get, path = "/v1/pool/stats", tag = "cloudflare",
    responses((status = 200, body = PoolStats), (status = "4XX", body = RefusalView)))]
pub(crate) async fn stats(State(app): State<App>, caller: Caller) -> Json<PoolStats> {
    let (warm, warm_target) = app.service.ready();
    let (assigned, max_instances) = app.service.quota(&caller.tenant);
    let config = PoolConfig { warm_target, refresh_interval: 0 };
    Json(PoolStats { warm, assigned, total: warm + assigned, config, max_instances })
}

/// Says that the pool is kept: the server fills it by itself from its start on.
#[utoipa::path(post, path = "/v1/pool/prime", tag = "cloudflare",
    responses((status = 200, body = Done), (status = "4XX", body = RefusalView)))]
pub(crate) async fn prime(_: Caller) -> Json<Done> {
    Done::OK
}

/// Ends the sandboxes that were made ahead; others are made in their stead at once.
#[utoipa::path(post, path = "/v1/pool/shutdown-prewarmed", tag = "cloudflare",
    responses((status = 200, body = Done), (status = "4XX", body = RefusalView)))]
pub(crate) async fn renew(State(app): State<App>, _: Caller) -> Json<Done> {
    app.service.renew_ready().await;
    Done::OK
}
