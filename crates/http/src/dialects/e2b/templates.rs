//! Templates: images of the tenant, by name and tag, that are built from steps.
//!
//! The id of a template is its name. A tag without a name is `latest`; `default` stands for it, too.

mod builds;
mod catalog;
pub(crate) mod started;
mod steps;
mod tags;
mod upload;

pub(crate) use catalog::image_name;
pub(crate) use upload::authenticate;

use crate::app::App;
use axum::routing::{get, post};
use utoipa_axum::router::OpenApiRouter;

/// The label of an image with the name of its user in this dialect.
const USER_LABEL: &str = "io.isolet.e2b.user";
/// The label of an image with the working directory of commands in this dialect.
const WORKDIR_LABEL: &str = "io.isolet.e2b.workdir";
/// The label of an image with the id of its build.
const BUILD_LABEL: &str = "io.isolet.e2b.build";

/// The routes of templates.
pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v3/templates", post(builds::request))
        .route("/v2/templates", get(catalog::list).post(builds::request))
        .route("/templates", get(catalog::list))
        .route("/templates/{snapshot}", get(catalog::get).delete(catalog::delete))
        .route("/templates/aliases/{alias}", get(catalog::alias))
        .route("/templates/tags", post(tags::assign).delete(tags::remove))
        .route("/templates/{snapshot}/tags", get(tags::list))
        .route("/templates/{snapshot}/files/{hash}", get(upload::link).put(upload::put))
        .route("/v2/templates/{snapshot}/builds/{build}", post(builds::start))
        .route("/templates/{snapshot}/builds/{build}/status", get(builds::status))
        .route("/templates/{snapshot}/builds/{build}/logs", get(builds::logs))
}
