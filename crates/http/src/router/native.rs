//! The routes of the native API with their OpenAPI descriptions.

use crate::app::App;
use crate::dialects;
use crate::routes::ports::{self, links, tcp};
use crate::routes::sandboxes::{self, moving, network};
use crate::routes::terminals::{self, recordings, socket};
use crate::routes::{
    audit, builds, contexts, events, exec, files, health, images, keys, metrics, nodes, processes,
    sessions, shell, snapshots, tickets, webhooks,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Every route of the native API, with its description.
pub(crate) fn native() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(metrics::read))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get, nodes::forget))
        .routes(routes!(nodes::cordon))
        .routes(routes!(nodes::uncordon))
        .routes(routes!(nodes::declare_dead))
        .routes(routes!(nodes::drain, nodes::drain_progress))
        .routes(routes!(moving::move_sandbox))
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::patch, sandboxes::delete))
        .routes(routes!(sandboxes::sleep))
        .routes(routes!(sandboxes::pause))
        .routes(routes!(sandboxes::resume))
        .routes(routes!(sandboxes::recover))
        .routes(routes!(network::get, network::patch))
        .routes(routes!(audit::read))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::current))
        .routes(routes!(keys::revoke))
        .routes(routes!(webhooks::list, webhooks::create))
        .routes(routes!(webhooks::get, webhooks::update, webhooks::remove))
        .routes(routes!(webhooks::rotate))
        .routes(routes!(webhooks::test))
        .routes(routes!(images::list, images::commit))
        .routes(routes!(images::get, images::remove))
        .routes(routes!(images::pull))
        .routes(routes!(images::names::tag))
        .routes(routes!(images::names::aliases))
        .routes(routes!(images::import))
        .routes(routes!(images::export))
        .routes(routes!(images::gc))
        .routes(routes!(builds::create, builds::list))
        .routes(routes!(builds::get, builds::cancel))
        .routes(routes!(builds::log))
        .routes(routes!(builds::look_for_files, builds::put_files))
        .routes(routes!(events::of_one))
        .routes(routes!(events::of_all))
        .routes(routes!(exec::alone))
        .routes(routes!(shell::shell))
        .routes(routes!(socket::terminal))
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
        .routes(routes!(sessions::get, sessions::patch, sessions::delete))
        .routes(routes!(exec::in_session))
        .merge(files::router())
        .merge(snapshots::router())
        .merge(ports::router())
        .merge(processes::router())
        .routes(routes!(tcp::open))
        .merge(links::router())
        .merge(dialects::cloudflare::router())
        .merge(dialects::e2b::router())
        .merge(dialects::isorun::router())
        .merge(dialects::pokee::router())
        .merge(dialects::swerex::router())
}
