//! The bridge's view of the warm pool: sandboxes that this server creates in advance, for all
//! tenants.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::cloudflare::error::Done;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

/// Statistics of the warm pool.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BridgePoolStats)]
pub(crate) struct PoolStats {
    /// The number of sandboxes that were created in advance.
    warm: usize,
    /// The number of sandboxes of the caller.
    assigned: usize,
    /// The sum of both.
    total: usize,
    /// The configuration of the pool.
    config: PoolConfig,
    /// The most sandboxes that the caller may have.
    max_instances: u32,
}

/// The configuration of the warm pool.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BridgePoolConfig)]
pub(crate) struct PoolConfig {
    /// The number of sandboxes to keep ready.
    warm_target: usize,
    /// Always 0: the server replaces a used sandbox at once.
    refresh_interval: u64,
}

/// Get statistics of the warm pool
///
/// Reports the sandboxes that the server has created in advance, and how many sandboxes the caller
/// has.
#[utoipa::path(
    get, path = "/v1/pool/stats", operation_id = "cloudflare_pool_stats", tag = "cloudflare",
    responses(
        (status = 200, description = "The statistics.", body = PoolStats)
    )
)]
pub(crate) async fn stats(State(app): State<App>, caller: Caller) -> Json<PoolStats> {
    let (warm, warm_target) = app.service.ready();
    let (assigned, max_instances) = app.service.quota(&caller.tenant);
    let config = PoolConfig { warm_target, refresh_interval: 0 };
    Json(PoolStats { warm, assigned, total: warm + assigned, config, max_instances })
}

/// Fill the warm pool
///
/// Has no effect: the server fills the pool from its start on.
#[utoipa::path(
    post, path = "/v1/pool/prime", operation_id = "cloudflare_pool_prime", tag = "cloudflare",
    responses(
        (status = 200, description = "The pool is being kept full.", body = Done)
    )
)]
pub(crate) async fn prime(_: Caller) -> Json<Done> {
    Done::OK
}

/// Replace the warm pool
///
/// Ends the sandboxes that were created in advance. The server creates new ones at once.
#[utoipa::path(
    post, path = "/v1/pool/shutdown-prewarmed", operation_id = "cloudflare_pool_shutdown_prewarmed", tag = "cloudflare",
    responses(
        (status = 200, description = "The pool is being replaced.", body = Done)
    )
)]
pub(crate) async fn renew(State(app): State<App>, _: Caller) -> Json<Done> {
    app.service.renew_ready().await;
    Done::OK
}
