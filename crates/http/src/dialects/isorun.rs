//! Isorun's `/v1/runs`: a run is a sandbox that ends at its timeout. Only `create` creates runs.

pub(crate) mod account;
pub(crate) mod files;
pub(crate) mod pause;
pub(crate) mod profiles;
pub(crate) mod proxy;
pub(crate) mod runs;
pub(crate) mod snapshots;

use crate::app::App;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Every route that the public client uses.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(runs::create, runs::list))
        .routes(routes!(runs::get, runs::patch, runs::delete))
        .routes(routes!(pause::hibernate))
        .routes(routes!(pause::resume))
        .routes(routes!(runs::exec))
        .routes(routes!(runs::shell))
        .routes(routes!(snapshots::take))
        .routes(routes!(snapshots::restore))
        .routes(routes!(snapshots::fork))
        .routes(routes!(files::upload))
        .routes(routes!(files::download))
        .routes(routes!(files::list))
        .routes(routes!(account::audit))
        .routes(routes!(account::usage))
        .routes(routes!(account::history))
        .routes(routes!(profiles::list))
        .routes(routes!(profiles::get, profiles::put, profiles::delete))
        .merge(proxy::router())
}
