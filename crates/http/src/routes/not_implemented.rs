//! Routes that are planned and not implemented. Each one gives its reason, instead of 404.

use crate::app::App;
use crate::foundation::error::ApiError;
use axum::Router;
use axum::routing::any;

/// A handler that answers 501 with the reason.
macro_rules! not_implemented {
    ($on:ident, $reason:expr) => {
        $on(|| async { $crate::foundation::error::ApiError::not_implemented($reason) })
    };
}
pub(crate) use not_implemented;

const LIFE: &str =
    "hibernation is not implemented yet; a persistent sandbox keeps its files when it sleeps";

/// The native routes that are not implemented.
pub(crate) fn router() -> Router<App> {
    let below = [("hibernate", LIFE), ("resume", LIFE)];
    let mut router = Router::new();
    for (name, reason) in below {
        let at = format!("/v1/sandboxes/{{id}}/{name}");
        router =
            router.route(&at, any(move || async move { ApiError::not_implemented(reason) })).route(
                &format!("{at}/{{*rest}}"),
                any(move || async move { ApiError::not_implemented(reason) }),
            );
    }
    router
}
