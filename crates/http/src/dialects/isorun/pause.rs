//! Hibernating a run is pausing its sandbox: its processes are frozen and keep their memory.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::isorun::runs::IsorunRun;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::State;

/// Hibernate a run
///
/// Pauses the sandbox: its processes are frozen and stay in memory. A restart of the host ends them.
#[utoipa::path(
    post, path = "/v1/runs/{id}/hibernate", operation_id = "runs_hibernate", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The run, in status `hibernated`.", body = IsorunRun)
    )
)]
pub(crate) async fn hibernate(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<IsorunRun>, ApiError> {
    Ok(Json(IsorunRun::from(app.service.pause(&caller.tenant, &ids.sandbox).await?)))
}

/// Resume a hibernated run
///
/// Lets the processes continue where they were frozen. A run that is not hibernated stays as it is.
#[utoipa::path(
    post, path = "/v1/runs/{id}/resume", operation_id = "runs_resume", tag = "isorun",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The run, in status `running`.", body = IsorunRun)
    )
)]
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<IsorunRun>, ApiError> {
    Ok(Json(IsorunRun::from(app.service.resume(&caller.tenant, &ids.sandbox).await?)))
}
