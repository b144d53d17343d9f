//! Every address of the server, with its answers to what is not there.

pub(crate) mod native;
pub(crate) mod openapi;
mod openapi_info;

use crate::{
    app::App,
    console,
    foundation::error::Failure,
    middleware::{audit, permit},
    routes::{not_implemented, ports::links},
};
use axum::{
    Router,
    http::{Method, StatusCode, Uri},
};

/// Everything, with its answers to what is not there.
pub(crate) fn router(app: App) -> Router {
    let (router, _) = native::native().split_for_parts();
    let noted = axum::middleware::from_fn_with_state(app.clone(), audit::noted);
    let held = axum::middleware::from_fn_with_state(app.clone(), permit::held);
    router
        .route_layer(noted)
        .route_layer(held)
        .route("/v1/openapi.json", axum::routing::get(openapi::serve))
        .merge(not_implemented::router())
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
