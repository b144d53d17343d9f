//! What the daemon says about itself.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::address::{gone, or_gone};
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::sandboxes::view::is_paused;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use isolet_sandbox::State as Stands;
use std::collections::BTreeMap;

/// Answers 204 for a sandbox that runs or that the next call wakes, and otherwise as if it did not
/// exist. Neither wakes nor resumes it.
pub(crate) async fn health(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<StatusCode, E2bError> {
    let info = app.service.get(&caller.tenant, &ids.sandbox).await;
    let runs = info.is_ok_and(|info| match info.state {
        Stands::Running | Stands::Creating => true,
        Stands::Sleeping => info.persistent && !is_paused(&info),
        Stands::Paused => info.auto_resume,
        _ => false,
    });
    if runs { Ok(StatusCode::NO_CONTENT) } else { Err(gone(&ids.sandbox).into()) }
}

/// The server tells nobody the values of environment variables.
pub(crate) async fn envs(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<BTreeMap<String, String>>, E2bError> {
    let info = app.service.get(&caller.tenant, &ids.sandbox).await;
    info.map_err(|failure| or_gone(failure.into(), &ids.sandbox))?;
    Ok(Json(BTreeMap::new()))
}
