//! Calls of E2B that this server does not have, each with its reason.

use crate::app::App;
use crate::dialects::e2b::error::E2bError;
use crate::foundation::error::ApiError;
use axum::http::{StatusCode, Uri};
use axum::routing::any;
use utoipa_axum::router::OpenApiRouter;

const VOLUMES: &str = "there are no volumes: use files of a sandbox, or snapshots";
const SECRETS: &str = "there is no service of secrets: give a sandbox credentials instead, whose values are injected into its requests";
const TEAMS: &str = "there are no teams: keys belong to tenants";
const MANY_METRICS: &str = "metrics are read for one sandbox at a time";

/// The routes that are refused, with everything below them.
const REFUSED: [(&str, &str); 7] = [
    ("/volumes", VOLUMES),
    ("/volumes/{*rest}", VOLUMES),
    ("/secrets", SECRETS),
    ("/secrets/{*rest}", SECRETS),
    ("/teams", TEAMS),
    ("/teams/{*rest}", TEAMS),
    ("/sandboxes/metrics", MANY_METRICS),
];

pub(super) fn router() -> OpenApiRouter<App> {
    REFUSED.iter().fold(OpenApiRouter::new(), |router, (path, reason)| {
        router.route(path, any(move || std::future::ready(refused(reason))))
    })
}

fn refused(reason: &str) -> E2bError {
    ApiError::not_implemented(reason).into()
}

/// A path of the data plane that no call has.
pub(super) async fn unknown(uri: Uri) -> E2bError {
    let path = uri.path().splitn(5, '/').nth(4).unwrap_or_default();
    let message = format!("there is no /{path}");
    let hint = "docs/dialects.md lists the calls";
    ApiError::new(StatusCode::NOT_FOUND, "no_route", message, hint).into()
}
