//! Pokee's `/v1/sessions`: sessions across a tenant's sandboxes, with a limited lifetime.

mod duration;
mod files;
mod scope;
mod sessions;

use crate::app::App;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The routes of the dialect.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sessions::create, sessions::list, sessions::clean))
        .routes(routes!(sessions::get, sessions::delete))
        .routes(routes!(sessions::exec))
        .routes(routes!(files::top))
        .routes(routes!(files::read, files::write, files::remove))
        .route("/v1/sessions/{sid}/files/", axum::routing::get(files::top))
}
