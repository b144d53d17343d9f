//! Assigns each route the kind of its connections, so that each kind has a limit of its own.

use crate::dialects::e2b::routes::{RouteUse, use_of};
use crate::dialects::swerex;
use crate::foundation::event_encoding::accepts_event_stream;
use crate::limits::kind::ConnectionKind;
use axum::http::{HeaderMap, Method, Uri};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The kind of a request to this route; `None` when the route counts its requests itself.
pub(crate) fn kind_of(
    method: &Method,
    route: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<ConnectionKind> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match swerex::routes::use_of(route) {
        Some(swerex::routes::RouteUse::Command) => return Some(ConnectionKind::Exec),
        Some(swerex::routes::RouteUse::Upload) => return Some(ConnectionKind::Upload),
        None => {}
    }
    let Some(connection_use) = USES.get(route) else {
        return Some(use_of(route).map_or(ConnectionKind::Call, |used| match used {
            RouteUse::Program => ConnectionKind::Exec,
            RouteUse::Events => ConnectionKind::EventStream,
            RouteUse::Files if reads => ConnectionKind::Download,
            RouteUse::Files | RouteUse::Upload => ConnectionKind::Upload,
        }));
    };
    match connection_use {
        ConnectionUse::Always(kind) => Some(*kind),
        ConnectionUse::Reads(kind) => Some(if reads { *kind } else { ConnectionKind::Call }),
        ConnectionUse::Log if accepts_event_stream(headers).is_some() => {
            Some(ConnectionKind::EventStream)
        }
        ConnectionUse::Log => Some(ConnectionKind::Call),
        ConnectionUse::Files => Some(match *method {
            Method::GET if watches(uri) => ConnectionKind::EventStream,
            Method::GET | Method::HEAD => ConnectionKind::Download,
            Method::PUT | Method::POST => ConnectionKind::Upload,
            _ => ConnectionKind::Call,
        }),
        ConnectionUse::Counted => None,
    }
}

/// Whether the query asks to watch a directory.
fn watches(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")))
}

/// How a route uses its connections.
#[derive(Debug, Clone, Copy)]
enum ConnectionUse {
    Always(ConnectionKind),
    /// Requests that read are of this kind, the others [`ConnectionKind::Call`].
    Reads(ConnectionKind),
    /// An event stream when the client accepts one.
    Log,
    /// By method; a watched directory is an event stream.
    Files,
    /// Counted by [`crate::proxy::forward::forward`], which serves links and host names too.
    Counted,
}

static USES: LazyLock<HashMap<&'static str, ConnectionUse>> =
    LazyLock::new(|| ROUTES.into_iter().collect());

/// Every route with requests that are not [`ConnectionKind::Call`].
const ROUTES: [(&str, ConnectionUse); 48] = [
    ("/v1/events", ConnectionUse::Always(ConnectionKind::EventStream)),
    ("/v1/sandboxes/{id}/events", ConnectionUse::Always(ConnectionKind::EventStream)),
    (
        "/v1/sandboxes/{id}/processes/{process}/wait",
        ConnectionUse::Always(ConnectionKind::EventStream),
    ),
    ("/v1/sandboxes/{id}/processes/{process}/logs", ConnectionUse::Log),
    ("/v1/sandboxes/{id}/shell", ConnectionUse::Always(ConnectionKind::Socket)),
    ("/v1/sandboxes/{id}/terminal", ConnectionUse::Always(ConnectionKind::Socket)),
    ("/v1/sandboxes/{id}/tcp/{port}", ConnectionUse::Always(ConnectionKind::Socket)),
    ("/v1/sandbox/{id}/pty", ConnectionUse::Always(ConnectionKind::Socket)),
    ("/v1/runs/{id}/shell", ConnectionUse::Always(ConnectionKind::Socket)),
    ("/v1/sandboxes/{id}/exec", ConnectionUse::Always(ConnectionKind::Exec)),
    ("/v1/sandboxes/{id}/sessions/{sid}/exec", ConnectionUse::Always(ConnectionKind::Exec)),
    ("/v1/sandboxes/{id}/contexts/{cid}/run", ConnectionUse::Always(ConnectionKind::Exec)),
    ("/v1/sandbox/{id}/exec", ConnectionUse::Always(ConnectionKind::Exec)),
    ("/v1/runs/{id}/exec", ConnectionUse::Always(ConnectionKind::Exec)),
    ("/v1/sessions/{sid}/exec", ConnectionUse::Always(ConnectionKind::Exec)),
    ("/v1/snapshots/{snapshot}/files", ConnectionUse::Files),
    ("/v1/snapshots/{snapshot}/files/", ConnectionUse::Files),
    ("/v1/snapshots/{snapshot}/files/{*path}", ConnectionUse::Files),
    ("/v1/sandboxes/{id}/files", ConnectionUse::Files),
    ("/v1/sandboxes/{id}/files/", ConnectionUse::Files),
    ("/v1/sandboxes/{id}/files/{*path}", ConnectionUse::Files),
    ("/v1/sandboxes/{id}/sessions/{sid}/files", ConnectionUse::Files),
    ("/v1/sandboxes/{id}/sessions/{sid}/files/", ConnectionUse::Files),
    ("/v1/sandboxes/{id}/sessions/{sid}/files/{*path}", ConnectionUse::Files),
    ("/v1/sessions/{sid}/files", ConnectionUse::Files),
    ("/v1/sessions/{sid}/files/", ConnectionUse::Files),
    ("/v1/sessions/{sid}/files/{*path}", ConnectionUse::Files),
    ("/v1/sandbox/{id}/file/{*path}", ConnectionUse::Files),
    ("/v1/runs/{id}/files/upload", ConnectionUse::Always(ConnectionKind::Upload)),
    ("/v1/sandbox/{id}/hydrate", ConnectionUse::Always(ConnectionKind::Upload)),
    ("/v1/images/builds", ConnectionUse::Always(ConnectionKind::Upload)),
    ("/v1/images/builds/files/{files}", ConnectionUse::Files),
    ("/v1/images/import", ConnectionUse::Always(ConnectionKind::Upload)),
    ("/v1/snapshots/{snapshot}/push", ConnectionUse::Always(ConnectionKind::Upload)),
    ("/v1/store/snapshots/{snapshot}/pull", ConnectionUse::Always(ConnectionKind::Upload)),
    ("/v1/images/export", ConnectionUse::Reads(ConnectionKind::Download)),
    ("/v1/images/pull", ConnectionUse::Always(ConnectionKind::Upload)),
    ("/v1/runs/{id}/files/download", ConnectionUse::Always(ConnectionKind::Download)),
    ("/v1/sandbox/{id}/persist", ConnectionUse::Always(ConnectionKind::Download)),
    ("/v1/audit", ConnectionUse::Reads(ConnectionKind::Download)),
    ("/v1/runs/{id}/audit", ConnectionUse::Reads(ConnectionKind::Download)),
    ("/v1/sandboxes/{id}/recordings/{recording}", ConnectionUse::Reads(ConnectionKind::Download)),
    ("/v1/sandboxes/{id}/ports/{port}", ConnectionUse::Counted),
    ("/v1/sandboxes/{id}/ports/{port}/", ConnectionUse::Counted),
    ("/v1/sandboxes/{id}/ports/{port}/{*path}", ConnectionUse::Counted),
    ("/v1/runs/{id}/proxy/{port}", ConnectionUse::Counted),
    ("/v1/runs/{id}/proxy/{port}/", ConnectionUse::Counted),
    ("/v1/runs/{id}/proxy/{port}/{*path}", ConnectionUse::Counted),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::native::native;
    use axum::http::{HeaderValue, header};
    use serde_json::Value;

    /// Every documented call, with its path in the router's syntax.
    fn calls() -> Vec<(Method, String, Value)> {
        let document = serde_json::to_value(native().into_openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap().clone();
        let calls = paths.into_iter().flat_map(|(path, calls)| {
            let calls = calls.as_object().unwrap().clone();
            calls.into_iter().map(move |(method, call)| {
                (method.to_uppercase().parse().unwrap(), path.clone(), call)
            })
        });
        calls.collect()
    }

    fn kind(
        method: &Method,
        route: &str,
        query: &str,
        accept: &'static str,
    ) -> Option<ConnectionKind> {
        let accept = (header::ACCEPT, HeaderValue::from_static(accept));
        let uri = format!("/x{query}").parse().unwrap();
        kind_of(method, route, &uri, &HeaderMap::from_iter([accept]))
    }

    /// Promises: T20.
    #[test]
    fn t19_what_lasts_is_never_a_mere_call() {
        let mut lasting = 0;
        for (method, path, call) in calls() {
            let said = call.to_string();
            let events = said.contains("text/event-stream");
            let socket = call["responses"].get("101").is_some();
            let bytes = said.contains("application/octet-stream");
            if events || socket || bytes {
                let kind = kind(&method, &path, "", "text/event-stream");
                assert_ne!(kind, Some(ConnectionKind::Call), "{method} {path}");
                assert!(
                    !socket || kind == Some(ConnectionKind::Socket),
                    "{method} {path}: {kind:?}"
                );
                lasting += 1;
            }
        }
        assert!(lasting > 20, "{lasting}");
    }

    #[test]
    fn every_route_of_the_table_exists() {
        let calls = calls();
        for (route, _) in ROUTES {
            // The slash after a directory is an undocumented alias.
            let described =
                if route.ends_with("files/") { route.trim_end_matches('/') } else { route };
            assert!(calls.iter().any(|(_, path, _)| path == described), "{route}");
        }
    }

    #[test]
    fn a_kind_follows_from_the_method_and_what_is_asked_for() {
        let files = "/v1/sandboxes/{id}/files";
        let logs = "/v1/sandboxes/{id}/processes/{process}/logs";
        let recording = "/v1/sandboxes/{id}/recordings/{recording}";
        let events = "text/event-stream";
        let cases = [
            (Method::GET, files, "?watch=1", "*/*", Some(ConnectionKind::EventStream)),
            (Method::GET, files, "", "*/*", Some(ConnectionKind::Download)),
            (Method::PUT, files, "", "*/*", Some(ConnectionKind::Upload)),
            (Method::DELETE, files, "", "*/*", Some(ConnectionKind::Call)),
            (Method::GET, logs, "", events, Some(ConnectionKind::EventStream)),
            (Method::GET, logs, "", "*/*", Some(ConnectionKind::Call)),
            (Method::DELETE, recording, "", "*/*", Some(ConnectionKind::Call)),
            (Method::DELETE, "/v1/sandboxes/{id}", "", "*/*", Some(ConnectionKind::Call)),
            (Method::GET, "/v1/sandboxes/{id}/ports/{port}/", "", "*/*", None),
        ];
        for (method, route, query, accept, expected) in cases {
            assert_eq!(kind(&method, route, query, accept), expected, "{method} {route}{query}");
        }
    }
}
