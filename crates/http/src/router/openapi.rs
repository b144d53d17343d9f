//! The OpenAPI document, generated from the routes.

mod error_codes;
mod info;
mod operations;
mod schemas;

use crate::router::messages;
use crate::router::native::native;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;

/// The document, as it is served and committed.
#[must_use]
pub fn document() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut document = info::document_base();
        document.merge(messages::messages());
        document.merge(native().into_openapi());
        operations::complete(&mut document);
        schemas::correct(&mut document);
        let mut text = document.to_pretty_json().unwrap_or_default();
        // The router's syntax for a path of several parts is not OpenAPI's.
        text = text.replace("{*path}", "{path}").replace("{*image}", "{image}");
        text.push('\n');
        text
    });
    &TEXT
}

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
            "docs/openapi.json is not what the routes say; write it with `make openapi`"
        );
    }
}
