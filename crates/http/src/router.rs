//! The router: every route of the server, and its 404 and 405 answers.

mod docs;
mod messages;
pub(crate) mod native;
pub(crate) mod openapi;

use crate::app::App;
use crate::console;
use crate::dialects::error_response;
use crate::forwarding::dispatch;
use crate::foundation::error::ApiError;
use crate::middleware::{audit, permit};
use crate::routes::ports::links;
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;

/// Builds the router of all routes, with their middleware.
pub(crate) fn router(app: App) -> Router {
    let (router, _) = native::native().split_for_parts();
    let audited = axum::middleware::from_fn_with_state(app.clone(), audit::record);
    let forwarded = axum::middleware::from_fn_with_state(app.clone(), dispatch::dispatch);
    let counted = axum::middleware::from_fn_with_state(app.clone(), permit::count_request);
    let router = router.route_layer(audited);
    // Without a fleet there is no such layer.
    let router = if app.fleet.is_some() { router.route_layer(forwarded) } else { router };
    router
        .route_layer(counted)
        .route("/v1/openapi.json", axum::routing::get(openapi::serve))
        .merge(links::link_router())
        .merge(console::router())
        .merge(docs::router())
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

async fn no_route(uri: Uri) -> Response {
    let message = format!("there is no {}", uri.path());
    let hint = "see /v1/openapi.json";
    error_response(ApiError::new(StatusCode::NOT_FOUND, "no_route", message, hint), uri.path())
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{} is not for {method}", uri.path());
    let hint = "see /v1/openapi.json";
    let failure = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "bad_method", message, hint);
    error_response(failure, uri.path())
}
