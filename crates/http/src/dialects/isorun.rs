//! Isorun's `/v1/runs`: a run is a sandbox that ends at its timeout. Nothing here creates but `create`.

mod account;
mod files;
mod missing;
mod profiles;
mod proxy;
mod runs;

use crate::server::App;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Every call that the public client makes.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(runs::create, runs::list))
        .routes(routes!(runs::get, runs::patch, runs::delete))
        .routes(routes!(runs::exec))
        .routes(routes!(runs::shell))
        .routes(routes!(files::upload))
        .routes(routes!(files::download))
        .routes(routes!(files::list))
        .routes(routes!(account::audit))
        .routes(routes!(account::usage))
        .routes(routes!(account::history))
        .routes(routes!(profiles::list))
        .routes(routes!(profiles::get, profiles::put, profiles::delete))
        .merge(proxy::router())
        .merge(missing::router())
}
