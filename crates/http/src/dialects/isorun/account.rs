//! The account: audit log of a run, usage, and history of ended runs.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::routes::audit;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use isolet_clock::{now_ms, rfc3339};
use isolet_sandbox::Past;
use serde::Serialize;
use utoipa::ToSchema;

/// Export the audit log of a run
///
/// Returns one JSON object per line, also for a run that has ended.
#[utoipa::path(
    get, path = "/v1/runs/{id}/audit", operation_id = "runs_audit", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The entries as newline-delimited JSON.", content_type = "application/x-ndjson", body = String)
    )
)]
pub(crate) async fn audit(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Response, ApiError> {
    audit::of_one(&app, &caller, &ids.sandbox).await
}

/// The resource usage of all runs, including those that have ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountUsage {
    /// The number of sandboxes.
    active_sandboxes: u64,
    /// The number of sandboxes that have ended.
    history_sandboxes: u64,
    /// Always 0, because this server bills nothing.
    active_cost_cents: u64,
    /// Always 0, because this server bills nothing.
    history_cost_cents: u64,
    /// Always 0, because this server bills nothing.
    total_cost_cents: u64,
    /// CPU time, in seconds.
    cpu_seconds: f64,
    /// The sum of memory limit in MiB times time awake in seconds.
    mem_seconds: f64,
    /// When this was computed, as in RFC 3339.
    as_of: String,
}

/// Get the resource usage of the account
///
/// Sums the usage of all runs of the caller, including those that have ended.
#[utoipa::path(
    get, path = "/v1/usage", operation_id = "usage_get", tag = "isorun",
    responses(
        (status = 200, description = "The usage.", body = AccountUsage)
    )
)]
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

/// The ended runs of the tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunHistory)]
pub(crate) struct History {
    /// The runs, latest first; at most 1,000.
    sandboxes: Vec<EndedRun>,
}

/// An ended run and the resources that it used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndedRun)]
pub(crate) struct EndedRun {
    /// The id of the run.
    id: String,
    /// The image that the run was created from.
    image: String,
    /// The CPU limit, in cores.
    vcpus: f64,
    /// The memory limit, in MiB.
    mem_mib: u64,
    /// How long its creation took, in milliseconds.
    create_ms: f64,
    /// When it was created, as in RFC 3339.
    created_at: String,
    /// When it ended, as in RFC 3339.
    destroyed_at: String,
    /// Milliseconds from its creation to its end.
    uptime_ms: u64,
    /// CPU time, in milliseconds.
    cpu_ms: f64,
    /// Peak memory, in bytes.
    mem_peak_bytes: u64,
    /// Always 0, because this server bills nothing.
    cost_cents: u64,
}

impl From<Past> for EndedRun {
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

/// List ended runs
///
/// Returns at most 1,000 ended runs with their resource usage, latest first.
#[utoipa::path(
    get, path = "/v1/runs/history", operation_id = "runs_history", tag = "isorun",
    responses(
        (status = 200, description = "The ended runs.", body = History)
    )
)]
pub(crate) async fn history(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<History>, ApiError> {
    let past = app.service.history(&caller.tenant).await?;
    Ok(Json(History { sandboxes: past.into_iter().map(EndedRun::from).collect() }))
}
