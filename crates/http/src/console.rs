//! The console: files that were built from `console/` and are embedded in this program.
//!
//! They are the same for all users and need no key; their data comes from the API, which needs one.
//! Debug builds embed them too, so that tests see what is shipped.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::RustEmbed;
use std::borrow::Cow;

/// What the page may do: run and show what this server sent, call this server, and nothing else. No
/// tenant's text can become a script (`require-trusted-types-for`), and no other page can embed
/// this one. `blob:` shows a tenant's images, which the page has fetched with its key.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob: data:; connect-src 'self'; font-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";
/// The page is revalidated on each load; it refers to its files by content hash, so they never
/// change.
const PAGE_CACHE: &str = "no-cache";
const FILE_CACHE: &str = "public, max-age=31536000, immutable";

#[derive(RustEmbed)]
#[folder = "../../console/dist/"]
#[allow_missing = true]
struct Built;

/// The page and its files.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(page)).route("/assets/{name}", get(file))
}

async fn page(headers: HeaderMap) -> Response {
    match found("index.html", &headers, built) {
        Some(response) => with(response, PAGE_CACHE),
        None => missing(),
    }
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match named(&name).and_then(|name| found(&format!("assets/{name}"), &headers, built)) {
        Some(response) => with(response, FILE_CACHE),
        None => {
            let text = "the console has no such file; reload the page\n";
            with((StatusCode::NOT_FOUND, text).into_response(), PAGE_CACHE)
        }
    }
}

pub(crate) type Bytes = Cow<'static, [u8]>;

pub(crate) fn built(path: &str) -> Option<Bytes> {
    Built::get(path).map(|file| file.data)
}

/// Accepts the names that the build generates: one part, without path separators.
pub(crate) fn named(name: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (!name.starts_with('.') && name.bytes().all(plain)).then_some(name)
}

/// Finds a file of the build, compressed if the client accepts that.
pub(crate) fn found(
    path: &str,
    headers: &HeaderMap,
    built: fn(&str) -> Option<Bytes>,
) -> Option<Response> {
    let kind = kind(path)?;
    let small = takes_gzip(headers).then(|| built(&format!("{path}.gz"))).flatten();
    let packed = small.is_some();
    let mut response = match small {
        Some(bytes) => bytes,
        None => built(path)?,
    }
    .into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|it| it.to_str().ok());
    all.any(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case("gzip")))
}

/// The media type. Files of other types are not served.
fn kind(path: &str) -> Option<&'static str> {
    match path.rsplit('.').next()? {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

/// The response of a server that was built without the console.
fn missing() -> Response {
    const PAGE: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Isolet</title>\
        <link rel=icon href=data:,>\
        <h1>The server runs; its console was not built</h1>\
        <p>Install npm with Node.js 18 or newer, then run <code>make build</code> (or \
        <code>make run</code>) again. \
        <p>Everything else works without it: the API under <code>/v1</code> \
        (<code>/v1/openapi.json</code>) and the command line (<code>isolet --help</code>).</html>\n";
    let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    with((StatusCode::NOT_IMPLEMENTED, html, PAGE).into_response(), PAGE_CACHE)
}

fn with(mut response: Response, cache: &'static str) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
        ("cache-control", cache),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str) -> Option<Bytes> {
        let bytes: &[u8] = match path {
            "index.html" => b"<!doctype html>",
            "assets/index-1a2b.js" => b"1",
            "assets/index-1a2b.js.gz" => b"\x1f\x8b",
            "assets/notes.txt" | "assets/index.js.map" => b"no",
            _ => return None,
        };
        Some(Cow::Borrowed(bytes))
    }

    fn taking(encodings: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, encodings.parse().unwrap());
        headers
    }

    /// Promises: C5.
    #[test]
    fn the_page_may_run_nothing_and_call_nobody_but_its_own_server() {
        let page = with(found("index.html", &HeaderMap::new(), sample).unwrap(), PAGE_CACHE);
        let said = |name| page.headers().get(name).and_then(|it| it.to_str().ok()).unwrap_or("");
        let policy: Vec<_> = said("content-security-policy").split("; ").collect();
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(&rule), "{rule} in {policy:?}");
        }
        assert!(policy.iter().all(|rule| !rule.contains("unsafe") && !rule.contains('*')));
        assert_eq!(said("x-frame-options"), "DENY");
        assert_eq!(said("referrer-policy"), "no-referrer");
        assert_eq!(said("cross-origin-opener-policy"), "same-origin");
        assert_eq!(said("cache-control"), "no-cache");
        assert_eq!(said("content-type"), "text/html; charset=utf-8");
    }

    #[test]
    fn a_file_is_compressed_only_for_clients_that_accept_gzip() {
        for (encodings, packed) in
            [("gzip, deflate, br", true), ("br;q=1, GZIP", true), ("br", false)]
        {
            let file = found("assets/index-1a2b.js", &taking(encodings), sample).unwrap();
            let is_encoded = file.headers().get(header::CONTENT_ENCODING).is_some();
            assert_eq!(is_encoded, packed, "{encodings}");
            assert_eq!(file.headers()[header::VARY], "accept-encoding");
            assert_eq!(file.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        }
    }

    #[test]
    fn only_names_that_the_build_gives_are_served() {
        assert_eq!(named("index-1a2b.js"), Some("index-1a2b.js"));
        for bad in ["../Cargo.toml", "a/b.js", "..", ".env", "a\\b.js", "a%2fb.js", "a\0.js"] {
            assert_eq!(named(bad), None, "{bad:?}");
        }
        for path in ["assets/notes.txt", "assets/index.js.map", "assets/nothing.js"] {
            assert!(found(path, &HeaderMap::new(), sample).is_none(), "{path}");
        }
    }

    /// Promises: C10.
    #[test]
    fn a_server_without_its_console_says_what_to_do() {
        let page = missing();
        assert_eq!(page.status(), StatusCode::NOT_IMPLEMENTED);
        assert!(page.headers().contains_key("content-security-policy"));
    }
}
