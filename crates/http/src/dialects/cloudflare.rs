//! The bridge of Cloudflare's sandboxes, `/v1/sandbox`, which clients outside of Workers call.

pub(crate) mod address;
pub(crate) mod error;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod not_implemented;
pub(crate) mod pool;
pub(crate) mod pty;
pub(crate) mod sandboxes;
pub(crate) mod sessions;
pub(crate) mod tunnel;
pub(crate) mod workspace_archive;

use crate::app::App;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Every route, including those that are not implemented.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sandboxes::create))
        .routes(routes!(sandboxes::delete))
        .routes(routes!(sandboxes::running))
        .routes(routes!(exec::exec))
        .routes(routes!(files::read, files::write))
        .routes(routes!(pty::pty))
        .routes(routes!(workspace_archive::persist))
        .routes(routes!(workspace_archive::hydrate))
        .routes(routes!(sessions::create))
        .routes(routes!(sessions::delete))
        .routes(routes!(tunnel::open, tunnel::close))
        .routes(routes!(pool::stats))
        .routes(routes!(pool::prime))
        .routes(routes!(pool::renew))
        .merge(not_implemented::router())
}

/// Whether a path belongs to the bridge, whose errors have a format of their own.
pub(crate) fn owns(path: &str) -> bool {
    let rest = path.strip_prefix("/v1/sandbox").or_else(|| path.strip_prefix("/v1/pool"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bridges_addresses_are_known() {
        for own in ["/v1/sandbox", "/v1/sandbox/a/exec", "/v1/pool/stats"] {
            assert!(owns(own), "{own}");
        }
        for other in ["/v1/sandboxes", "/v1/sandboxes/a", "/v1/poolside", "/"] {
            assert!(!owns(other), "{other}");
        }
    }
}
