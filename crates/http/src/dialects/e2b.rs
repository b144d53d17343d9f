//! E2B's API, for its unmodified SDKs.
//!
//! The *control plane* (`/sandboxes`, `/v2/sandboxes`) creates and lists sandboxes. The *data plane*
//! of a sandbox has commands and files. Requests to it carry the header `E2b-Sandbox-Id` or come to
//! a host name `49983-ID.DOMAIN`, because paths such as `/files` and `/health` mean something else
//! in other dialects. [`address`] gives such a request a path below [`address::PREFIX`], so that from
//! then on everything treats it as any other request below a sandbox.

pub(crate) mod access_token;
pub(crate) mod address;
mod body;
pub(crate) mod connect;
pub(crate) mod error;
pub(crate) mod file_signature;
pub(crate) mod filesystem;
mod interpreter;
mod metadata;
mod not_implemented;
mod process;
pub(crate) mod routes;
pub(crate) mod sandboxes;
pub(crate) mod templates;
mod transfer;
mod user;

use crate::app::App;
use axum::routing::{any, get, post, put};
use sandboxes::{create, lifecycle, list, observe, snapshots};
use utoipa_axum::router::OpenApiRouter;

/// Every route. E2B's own specification describes them, so the OpenAPI document of this server does
/// not.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/sandboxes", get(list::running).post(create::create))
        .route("/v2/sandboxes", get(list::list).post(create::create))
        .route("/sandboxes/{id}", get(list::get).delete(lifecycle::kill))
        .route("/sandboxes/{id}/connect", post(lifecycle::connect))
        .route("/v2/sandboxes/{id}/connect", post(lifecycle::connect))
        .route("/sandboxes/{id}/pause", post(lifecycle::pause))
        .route("/sandboxes/{id}/resume", post(lifecycle::resume))
        .route("/sandboxes/{id}/timeout", post(lifecycle::timeout))
        .route("/sandboxes/{id}/refreshes", post(lifecycle::refresh))
        .route("/sandboxes/{id}/network", put(lifecycle::network))
        .route("/sandboxes/{id}/metrics", get(observe::metrics))
        .route("/sandboxes/{id}/logs", get(observe::logs))
        .route("/v2/sandboxes/{id}/logs", get(observe::logs))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/snapshots", get(snapshots::list))
        .merge(templates::router())
        .merge(data_plane())
        .merge(not_implemented::router())
}

/// The routes of the data plane, as [`address`] writes them.
fn data_plane() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/e2b/{id}/health", get(sandboxes::health::health))
        .route("/v1/e2b/{id}/envs", get(sandboxes::health::envs))
        .route("/v1/e2b/{id}/files", get(transfer::download).post(transfer::upload))
        .merge(process::router())
        .merge(filesystem::router())
        .merge(interpreter::router())
        .route("/v1/e2b/{id}/{*path}", any(not_implemented::unknown))
}
