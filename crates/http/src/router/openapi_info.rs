//! The parts of the OpenAPI document that do not come from routes.

use utoipa::{
    Modify, OpenApi,
    openapi::security::{Http, HttpAuthScheme, SecurityScheme},
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Isolet", description = "Sandboxes with shells that stay, for AI agents."),
    modifiers(&Bearer),
    security(("key" = [])),
    tags(
        (name = "sandboxes", description = "Isolated files, processes and network."),
        (name = "images", description = "What sandboxes are made of."),
        (name = "sessions", description = "Shell contexts in a sandbox."),
        (name = "commands", description = "Commands by HTTP and over the shell WebSocket."),
        (name = "terminals", description = "A session's PTY over WebSocket, and the tickets that open it from a page."),
        (name = "contexts", description = "Code interpreters that keep variables and imports."),
        (name = "files", description = "Files of a sandbox, and of its sessions."),
        (name = "ports", description = "Programs that listen inside a sandbox."),
        (name = "audit", description = "What was done to sandboxes, by whom."),
        (name = "events", description = "What happens to sandboxes, as it happens."),
        (name = "cloudflare", description = "The bridge of Cloudflare's sandboxes."),
        (name = "isorun", description = "The Isorun dialect."),
        (name = "pokee", description = "The Pokee dialect: sessions that end by themselves."),
        (name = "server", description = "The server itself."),
    )
)]
struct Frame;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("key", scheme);
    }
}

/// The document without its routes.
pub(crate) fn frame() -> utoipa::openapi::OpenApi {
    Frame::openapi()
}
