//! What each route needs of its caller. The only place that decides this by the path of a request.

use axum::http::Method;

/// The route of the Model Context Protocol's tools.
pub(crate) const MCP_PATH: &str = "/mcp";

/// What a route needs of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// No key: the route shows nothing that belongs to a tenant.
    Public,
    /// No key: the path contains a signed link, which itself grants access to its port.
    SignedLink,
    /// No key: the URL contains a token that allows one upload.
    SignedUpload,
    /// A key. A read-only key may use GET and HEAD.
    Key,
    /// A key that is not read-only, for every method: the program behind the port decides what a
    /// GET does.
    ForwardsToProgram,
    /// A key. The handler itself checks what a read-only key may do.
    ChecksReadOnlyItself,
}

/// Every route that needs anything other than a key. `{x}` stands for one part of a path, and `*`
/// for the rest of it, at least one part, which may be empty.
const ROUTES: [(&str, RouteAccess); 12] = [
    ("/", RouteAccess::Public),
    ("/assets/*", RouteAccess::Public),
    ("/docs", RouteAccess::Public),
    ("/docs/*", RouteAccess::Public),
    ("/health", RouteAccess::Public),
    ("/v1/openapi.json", RouteAccess::Public),
    ("/v1/links/*", RouteAccess::SignedLink),
    ("/v1/sandboxes/{id}/ports/*", RouteAccess::ForwardsToProgram),
    ("/v1/sandboxes/{id}/tcp/*", RouteAccess::ForwardsToProgram),
    ("/v1/runs/{id}/proxy/*", RouteAccess::ForwardsToProgram),
    // Listing the contexts of E2B's code interpreter starts some.
    ("/v1/e2b/{id}/interpreter/*", RouteAccess::ForwardsToProgram),
    (MCP_PATH, RouteAccess::ChecksReadOnlyItself),
];

/// Where clients of E2B's dialect send the files of a template.
const UPLOAD: &str = "/templates/{name}/files/{hash}";
/// A read-only key may create tickets for viewing a terminal.
const TICKETS_PATH: &str = "/v1/tickets";

impl RouteAccess {
    /// What the route of a request needs.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        if *method == Method::POST && path == TICKETS_PATH {
            return Self::ChecksReadOnlyItself;
        }
        if *method == Method::PUT && matches(UPLOAD, path) {
            return Self::SignedUpload;
        }
        let route = ROUTES.iter().find(|(pattern, _)| matches(pattern, path));
        route.map_or(Self::Key, |(_, access)| *access)
    }

    /// Whether a request with this method only reads.
    pub(crate) fn only_reads(self, method: &Method) -> bool {
        self != Self::ForwardsToProgram && matches!(*method, Method::GET | Method::HEAD)
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    for expected in pattern.split('/') {
        let Some(part) = parts.next() else { return false };
        if expected == "*" {
            return true;
        }
        if !expected.starts_with('{') && expected != part {
            return false;
        }
    }
    parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> RouteAccess {
        RouteAccess::of(&Method::GET, path)
    }

    #[test]
    fn a_path_into_a_program_needs_a_key_that_may_write() {
        for path in [
            "/v1/sandboxes/a/ports/1",
            "/v1/sandboxes/a/ports/",
            "/v1/sandboxes/a/ports/1/x",
            "/v1/sandboxes/a/tcp/1",
            "/v1/runs/a/proxy/1/x",
            "/v1/e2b/a/interpreter/contexts",
        ] {
            assert_eq!(get(path), RouteAccess::ForwardsToProgram, "{path}");
            assert!(!get(path).only_reads(&Method::GET), "{path}");
        }
        for path in [
            "/v1/sandboxes/a/ports",
            "/v1/sandboxes/a/files/ports/1",
            "/v1/runs/a/files",
            "/v1/sandboxes",
        ] {
            assert_eq!(get(path), RouteAccess::Key, "{path}");
            assert!(get(path).only_reads(&Method::HEAD) && !get(path).only_reads(&Method::POST));
        }
    }

    #[test]
    fn only_pages_their_files_the_document_and_health_are_public() {
        for path in [
            "/",
            "/assets/index-1a2b.js",
            "/assets/a/b",
            "/docs",
            "/docs/start.js",
            "/health",
            "/v1/openapi.json",
        ] {
            assert_eq!(get(path), RouteAccess::Public, "{path}");
        }
        for path in [
            "/v1/sandboxes",
            "/assets",
            "//",
            "/index.html",
            "/v1/../assets/x",
            "",
            "/health/",
            "/v1/openapi.json/",
        ] {
            assert_eq!(get(path), RouteAccess::Key, "{path}");
        }
    }

    #[test]
    fn links_and_routes_that_check_keys_themselves_are_known() {
        for path in ["/v1/links/", "/v1/links/abc", "/v1/links/abc/x"] {
            assert_eq!(get(path), RouteAccess::SignedLink, "{path}");
        }
        assert_eq!(get("/v1/links"), RouteAccess::Key);
        let upload = |method| RouteAccess::of(&method, "/templates/a/files/b");
        assert_eq!(upload(Method::PUT), RouteAccess::SignedUpload);
        assert_eq!(upload(Method::GET), RouteAccess::Key);
        assert_eq!(RouteAccess::of(&Method::PUT, "/templates/a/files/b/c"), RouteAccess::Key);
        assert_eq!(get(MCP_PATH), RouteAccess::ChecksReadOnlyItself);
        let tickets = RouteAccess::of(&Method::POST, TICKETS_PATH);
        assert_eq!(tickets, RouteAccess::ChecksReadOnlyItself);
        assert_eq!(get(TICKETS_PATH), RouteAccess::Key);
    }
}
