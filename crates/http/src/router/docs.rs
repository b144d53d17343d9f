//! `/docs`: the API reference, rendered in the browser from files that were built with the console.
//!
//! The renderer is a large third-party program, so its page runs in a sandbox with an opaque
//! origin: it can read nothing that the console stores, such as a key, and it can send nothing. It
//! cannot even fetch the OpenAPI document, which is therefore served to it as a script too.

use crate::console::{self, Bytes};
use crate::router::openapi;
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::LazyLock;

/// What the page may do: run and show what this server sent, and nothing else. `sandbox` without
/// `allow-same-origin` gives it an opaque origin.
const POLICY: &str = "sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox; \
    default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Names do not change with their contents.
const CACHE: &str = "no-cache";

/// The page and its files.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/docs", get(page))
        .route("/docs/openapi.js", get(script))
        .route("/docs/{name}", get(file))
}

async fn page(headers: HeaderMap) -> Response {
    with_policy(page_from(&headers, console::built))
}

fn page_from(headers: &HeaderMap, built: fn(&str) -> Option<Bytes>) -> Response {
    console::found("docs/index.html", headers, built).unwrap_or_else(missing)
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let path = console::named(&name).map(|name| format!("docs/{name}"));
    let found = path.and_then(|path| console::found(&path, &headers, console::built));
    with_policy(found.unwrap_or_else(|| {
        (StatusCode::NOT_FOUND, "the API reference has no such file\n").into_response()
    }))
}

/// The OpenAPI document as a script that stores it in a variable.
async fn script() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        ["globalThis.isoletOpenapi = ", openapi::document().trim_end(), ";\n"].concat()
    });
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    with_policy((kind, TEXT.as_str()).into_response())
}

/// The response of a server that was built without the console.
fn missing() -> Response {
    const PAGE: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Isolet API</title>\
        <link rel=icon href=data:,>\
        <h1>The API reference was not built</h1>\
        <p>It is built with the console. Install npm with Node.js 18 or newer, then run \
        <code>make build</code> (or <code>make run</code>) again.\
        <p>The OpenAPI document itself is at <a href=/v1/openapi.json>/v1/openapi.json</a>.</html>\n";
    let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (StatusCode::NOT_IMPLEMENTED, html, PAGE).into_response()
}

/// Adds the policy. The files may be loaded by an opaque origin, which the page has.
fn with_policy(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "cross-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
        ("cache-control", CACHE),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn policy(response: &Response) -> Vec<String> {
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        policy.split("; ").map(str::to_owned).collect()
    }

    #[test]
    fn the_page_has_an_opaque_origin_and_can_send_nothing() {
        let built = |path: &str| {
            (path == "docs/index.html").then_some(Cow::Borrowed(&b"<!doctype html>"[..]))
        };
        let page = with_policy(page_from(&HeaderMap::new(), built));
        assert_eq!(page.status(), StatusCode::OK);
        let policy = policy(&page);
        let sandbox = policy.iter().find(|rule| rule.starts_with("sandbox ")).unwrap();
        assert!(!sandbox.contains("allow-same-origin"));
        assert!(!sandbox.contains("allow-forms"));
        assert!(policy.contains(&"default-src 'none'".to_owned()));
        assert!(policy.contains(&"script-src 'self'".to_owned()));
        assert!(!policy.iter().any(|rule| rule.starts_with("connect-src")));
        assert!(!policy.iter().any(|rule| rule.contains("unsafe")));
    }

    #[test]
    fn a_server_without_the_console_says_that_the_reference_was_not_built() {
        let page = with_policy(page_from(&HeaderMap::new(), |_| None));
        assert_eq!(page.status(), StatusCode::NOT_IMPLEMENTED);
        assert!(page.headers().contains_key("content-security-policy"));
    }
}
