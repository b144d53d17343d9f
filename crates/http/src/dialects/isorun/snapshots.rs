//! Snapshots of runs: take, restore, fork. Listing and deleting are the native routes.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::isorun::runs::IsorunRun;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::ClaimedId;
use crate::foundation::input::PathIds;
use crate::foundation::json::SmallJson;
use crate::routes::snapshots::{Fork, parse_id};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use isolet_clock::rfc3339;
use isolet_sandbox::{SandboxSpec, SnapshotInfo, SnapshotSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A snapshot of a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunSnapshot)]
pub(crate) struct IsorunSnapshot {
    /// The id of the snapshot.
    snapshot_id: String,
    /// The id of the run.
    run_id: String,
    /// The size of the data in its files, in bytes.
    size_bytes: u64,
    /// When it was taken, as in RFC 3339.
    created_at: String,
}

impl From<SnapshotInfo> for IsorunSnapshot {
    fn from(info: SnapshotInfo) -> Self {
        Self {
            snapshot_id: info.id.into(),
            run_id: info.sandbox.into(),
            size_bytes: info.size_bytes,
            created_at: rfc3339(info.created_at_ms),
        }
    }
}

/// The snapshot to restore.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreRun {
    /// The id of the snapshot.
    snapshot_id: String,
}

/// The runs that a fork created.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunForks)]
pub(crate) struct IsorunForks {
    /// The new runs.
    forks: Vec<IsorunRun>,
}

/// Take a snapshot of a run
#[utoipa::path(
    post, path = "/v1/runs/{id}/snapshot", operation_id = "runs_snapshot", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 201, description = "The snapshot is complete.", body = IsorunSnapshot)
    )
)]
pub(crate) async fn take(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<(StatusCode, Json<IsorunSnapshot>), ApiError> {
    let spec = SnapshotSpec::default();
    let taken = app.service.create_snapshot(&caller.tenant, &ids.sandbox, spec, None).await?;
    Ok((StatusCode::CREATED, Json(taken.0.into())))
}

/// Create a run from a snapshot
#[utoipa::path(
    post, path = "/v1/runs/restore", operation_id = "runs_restore", tag = "isorun",
    request_body = RestoreRun,
    responses(
        (status = 201, description = "The run was created.", body = IsorunRun)
    )
)]
pub(crate) async fn restore(
    State(app): State<App>,
    caller: Caller,
    claimed: Option<Extension<ClaimedId>>,
    body: SmallJson<RestoreRun>,
) -> Result<(StatusCode, Json<IsorunRun>), ApiError> {
    let snapshot = Some(parse_id(&body.value.snapshot_id)?);
    let wish = SandboxSpec { snapshot, ..SandboxSpec::default() };
    let wish = ClaimedId::complete(claimed, wish);
    let restored = app.service.create(&caller.tenant, wish, None).await?;
    Ok((StatusCode::CREATED, Json(restored.info.into())))
}

/// Fork a run
#[utoipa::path(
    post, path = "/v1/runs/{id}/fork", operation_id = "runs_fork", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    request_body = Fork,
    responses(
        (status = 201, description = "The new runs.", body = IsorunForks)
    )
)]
pub(crate) async fn fork(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: SmallJson<Fork>,
) -> Result<(StatusCode, Json<IsorunForks>), ApiError> {
    let count = body.value.count();
    let (forks, _) = app.service.fork(&caller.tenant, &ids.sandbox, count, None).await?;
    let forks = forks.into_iter().map(IsorunRun::from).collect();
    Ok((StatusCode::CREATED, Json(IsorunForks { forks })))
}
