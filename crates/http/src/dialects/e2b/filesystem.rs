//! The service `filesystem.Filesystem`.

mod calls;
mod changes;
mod directory_watch;
mod entry;
mod held_events;
mod list;
mod watch;
pub(crate) mod watchers;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::connect::RpcError;
use crate::dialects::e2b::process;
use crate::foundation::input::PathIds;
use axum::routing::{any, post};
use isolet_sandbox::Sandbox;
use isolet_sandbox::service::Access;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/e2b/{id}/filesystem.Filesystem/Stat", post(calls::stat))
        .route("/v1/e2b/{id}/filesystem.Filesystem/MakeDir", post(calls::make_dir))
        .route("/v1/e2b/{id}/filesystem.Filesystem/Move", post(calls::rename))
        .route("/v1/e2b/{id}/filesystem.Filesystem/Remove", post(calls::remove))
        .route("/v1/e2b/{id}/filesystem.Filesystem/ListDir", post(list::list))
        .route("/v1/e2b/{id}/filesystem.Filesystem/WatchDir", post(watch::watch))
        .route("/v1/e2b/{id}/filesystem.Filesystem/CreateWatcher", post(watch::create))
        .route("/v1/e2b/{id}/filesystem.Filesystem/GetWatcherEvents", post(watch::events))
        .route("/v1/e2b/{id}/filesystem.Filesystem/RemoveWatcher", post(watch::remove))
        .route("/v1/e2b/{id}/filesystem.Filesystem/{method}", any(process::unknown))
}

async fn reach(app: &App, caller: &Caller, ids: &PathIds) -> Result<Sandbox, RpcError> {
    Ok(app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?)
}
