//! What can be asked: one file a resource.

pub(crate) mod audit;
pub(crate) mod contexts;
pub(crate) mod credentials;
mod events;
pub(crate) mod exec;
pub(crate) mod files;
mod health;
mod images;
pub(crate) mod links;
pub(crate) mod missing;
pub(crate) mod network;
pub(crate) mod ports;
mod processes;
mod recordings;
pub(crate) mod sandboxes;
mod sessions;
pub(crate) mod shell;
mod tcp;
pub(crate) mod terminal;
mod terminals;
mod tickets;

use crate::{audit as audited, console, dialects, error::Failure, limits, openapi, server::App};
use axum::{
    Router,
    http::{Method, StatusCode, Uri},
};
use utoipa_axum::{router::OpenApiRouter, routes};

/// Every route of the native API, with its description.
pub(crate) fn native() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(health::health))
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::patch, sandboxes::delete))
        .routes(routes!(sandboxes::sleep))
        .routes(routes!(sandboxes::recover))
        .routes(routes!(network::get, network::patch))
        .routes(routes!(audit::read))
        .routes(routes!(images::list))
        .routes(routes!(images::get, images::remove))
        .routes(routes!(images::pull))
        .routes(routes!(images::import))
        .routes(routes!(images::gc))
        .routes(routes!(events::of_one))
        .routes(routes!(events::of_all))
        .routes(routes!(exec::alone))
        .routes(routes!(shell::shell))
        .routes(routes!(terminal::terminal))
        .routes(routes!(terminals::list))
        .routes(routes!(terminals::hang_up))
        .routes(routes!(recordings::begin, recordings::stop))
        .routes(routes!(recordings::list))
        .routes(routes!(recordings::read, recordings::delete))
        .routes(routes!(tickets::create))
        .routes(routes!(contexts::create, contexts::list))
        .routes(routes!(contexts::get, contexts::delete))
        .routes(routes!(contexts::run))
        .routes(routes!(contexts::interrupt))
        .routes(routes!(contexts::restart))
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::get, sessions::delete))
        .routes(routes!(exec::in_session))
        .merge(files::router())
        .merge(ports::router())
        .merge(processes::router())
        .routes(routes!(tcp::open))
        .merge(links::router())
        .merge(dialects::cloudflare::router())
        .merge(dialects::isorun::router())
        .merge(dialects::pokee::router())
}

/// Everything, with its answers to what is not there.
pub(crate) fn router(app: App) -> Router {
    let (router, _) = native().split_for_parts();
    let noted = axum::middleware::from_fn_with_state(app.clone(), audited::noted);
    let held = axum::middleware::from_fn_with_state(app.clone(), limits::held);
    router
        .route_layer(noted)
        .route_layer(held)
        .route("/v1/openapi.json", axum::routing::get(openapi::serve))
        .merge(missing::router())
        .merge(links::way_in())
        .merge(console::router())
        .fallback(nothing)
        .method_not_allowed_fallback(other_method)
        .with_state(app)
}

async fn nothing(uri: Uri) -> Failure {
    let message = format!("there is no {}", uri.path());
    Failure::new(StatusCode::NOT_FOUND, "no_route", message, "see /v1/openapi.json")
}

async fn other_method(method: Method, uri: Uri) -> Failure {
    let message = format!("{} is not for {method}", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "bad_method", message, "see /v1/openapi.json")
}
