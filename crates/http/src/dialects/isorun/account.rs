//! The account: audit log of a run, usage, and history of ended runs.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        error::ApiError,
        input::PathIds,
        time::{now_ms, rfc3339},
    },
    routes::audit,
};
use axum::{Json, extract::State, response::Response};
use isolet_sandbox::Past;
use serde::Serialize;
use utoipa::ToSchema;

/// What was done to a run, also to one that has ended: one entry a line.
#[utoipa::path(get, path = "/v1/runs/{id}/audit", tag = "isorun", params(("id" = String, Path)),
    responses((status = 200, content_type = "application/x-ndjson", body = String), (status = 404, body = ApiError)))]
pub(crate) async fn audit(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Response, ApiError> {
    audit::of_one(&app, &caller, &ids.sandbox).await
}

/// What all runs have used, those that have ended too.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountUsage {
    active_sandboxes: u64,
    history_sandboxes: u64,
    /// Nothing costs anything here.
    active_cost_cents: u64,
    /// Likewise.
    history_cost_cents: u64,
    /// Likewise.
    total_cost_cents: u64,
    /// Processor time, in s.
    cpu_seconds: f64,
    /// Memory that they might use, in MiB, times how long they were awake, in s.
    mem_seconds: f64,
    /// RFC 3339.
    as_of: String,
}

/// Sums over the caller's sandboxes.
#[utoipa::path(get, path = "/v1/usage", tag = "isorun",
    responses((status = 200, body = AccountUsage)))]
pub(crate) async fn usage(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<AccountUsage>, ApiError> {
    let account = app.service.account(&caller.tenant).await?;
    Ok(Json(AccountUsage {
        active_sandboxes: account.active,
        history_sandboxes: account.ended,
        active_cost_cents: 0,
        history_cost_cents: 0,
        total_cost_cents: 0,
        cpu_seconds: account.cpu_us as f64 / 1e6,
        mem_seconds: account.memory_mib_ms as f64 / 1e3,
        as_of: rfc3339(now_ms()),
    }))
}

/// Runs that have ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct History {
    /// The last one first; at most 1,000.
    sandboxes: Vec<Ended>,
}

/// A run that has ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ended {
    id: String,
    image: String,
    vcpus: f64,
    mem_mib: u64,
    create_ms: f64,
    /// RFC 3339.
    created_at: String,
    /// RFC 3339.
    destroyed_at: String,
    /// From its creation to its end.
    uptime_ms: u64,
    /// Processor time.
    cpu_ms: f64,
    /// The most that it ever used.
    mem_peak_bytes: u64,
    /// Nothing costs anything here.
    cost_cents: u64,
}

impl From<Past> for Ended {
    fn from(past: Past) -> Self {
        Self {
            id: past.id,
            image: past.image,
            vcpus: past.cpu_millis as f64 / 1000.0,
            mem_mib: past.memory_mib,
            create_ms: past.create_ms,
            created_at: rfc3339(past.created_at_ms),
            destroyed_at: rfc3339(past.destroyed_at_ms),
            uptime_ms: past.uptime_ms,
            cpu_ms: past.cpu_us as f64 / 1000.0,
            mem_peak_bytes: past.memory_peak_bytes,
            cost_cents: 0,
        }
    }
}

/// What each ended run had used, the last one first; at most 1,000.
#[utoipa::path(get, path = "/v1/runs/history", tag = "isorun",
    responses((status = 200, body = History)))]
pub(crate) async fn history(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<History>, ApiError> {
    let past = app.service.history(&caller.tenant).await?;
    Ok(Json(History { sandboxes: past.into_iter().map(Ended::from).collect() }))
}
