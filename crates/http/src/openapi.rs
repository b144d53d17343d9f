//! The description of the API, made from the routes themselves.

use crate::routes;
use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use std::sync::LazyLock;
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

/// What stands around the routes.
pub(crate) fn frame() -> utoipa::openapi::OpenApi {
    Frame::openapi()
}

/// The document, as it is served and committed.
#[must_use]
pub fn document() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut text = routes::native().into_openapi().to_pretty_json().unwrap_or_default();
        // The router's mark for a path of several parts is not the document's.
        text = text.replace("{*path}", "{path}").replace("{*image}", "{image}");
        text.push('\n');
        text
    });
    &TEXT
}

/// Gives the document.
pub(crate) async fn serve() -> Response {
    let mut response = document().into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::document;

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

    #[test]
    fn the_committed_document_is_what_the_routes_say() {
        if std::env::var_os("ISOLET_WRITE_OPENAPI").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).unwrap();
            std::fs::write(PATH, document()).unwrap();
        }
        let committed = std::fs::read_to_string(PATH).unwrap_or_default();
        assert!(
            committed == document(),
            "docs/openapi.json is not what the routes say; renew it with\n\
             ISOLET_WRITE_OPENAPI=1 cargo test -p isolet-http openapi"
        );
    }

    #[test]
    fn every_call_has_a_description() {
        let json: serde_json::Value = serde_json::from_str(document()).unwrap();
        let paths = json["paths"].as_object().unwrap();
        assert!(paths.len() > 8);
        for (path, calls) in paths {
            for (method, call) in calls.as_object().unwrap() {
                assert!(call["summary"].is_string(), "{method} {path}");
            }
        }
    }
}
