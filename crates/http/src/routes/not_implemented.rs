//! Calls of the design that are not built yet: each says so, rather than not to exist.

use crate::{app::App, foundation::error::Failure};
use axum::{Router, routing::any};

/// An answer that gives the reason.
macro_rules! says {
    ($on:ident, $reason:expr) => {
        $on(|| async { $crate::foundation::error::Failure::unbuilt_call($reason) })
    };
}
pub(crate) use says;

const LIFE: &str =
    "snapshots and forks are not built yet; files of a persistent sandbox outlive its sleep";

/// All of them, below a sandbox and beside.
pub(crate) fn router() -> Router<App> {
    let below = [("snapshots", LIFE), ("fork", LIFE), ("hibernate", LIFE), ("resume", LIFE)];
    let mut router = Router::new();
    for (name, reason) in below {
        let at = format!("/v1/sandboxes/{{id}}/{name}");
        router =
            router.route(&at, any(move || async move { Failure::unbuilt_call(reason) })).route(
                &format!("{at}/{{*rest}}"),
                any(move || async move { Failure::unbuilt_call(reason) }),
            );
    }
    router
}
