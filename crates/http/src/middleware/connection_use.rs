//! Which routes use their connections for what, so that each kind has a limit of its own.

use crate::{foundation::event_encoding::accepts_event_stream, limits::kind::Kind};
use axum::http::{HeaderMap, Method, Uri};
use std::{collections::HashMap, sync::LazyLock};

/// The kind of a request to this route; `None` where the route counts its requests itself.
pub(crate) fn kind_of(
    method: &Method,
    route: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<Kind> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let Some(use_of) = USES.get(route) else { return Some(Kind::Call) };
    match use_of {
        Use::Always(kind) => Some(*kind),
        Use::Reads(kind) => Some(if reads { *kind } else { Kind::Call }),
        Use::Log if accepts_event_stream(headers).is_some() => Some(Kind::EventStream),
        Use::Log => Some(Kind::Call),
        Use::Files => Some(match *method {
            Method::GET if watches(uri) => Kind::EventStream,
            Method::GET | Method::HEAD => Kind::Download,
            Method::PUT | Method::POST => Kind::Upload,
            _ => Kind::Call,
        }),
        Use::Counted => None,
    }
}

/// Whether the query asks for what happens in a directory.
fn watches(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")))
}

/// How a route uses connections.
#[derive(Debug, Clone, Copy)]
enum Use {
    Always(Kind),
    /// Reading calls are of this kind, the others [`Kind::Call`].
    Reads(Kind),
    /// An event stream where the client asks for one.
    Log,
    /// By method, and a watched directory is an event stream.
    Files,
    /// Counted behind the route: [`crate::proxy::forward::pass`] serves links and host names too.
    Counted,
}

static USES: LazyLock<HashMap<&'static str, Use>> = LazyLock::new(|| ROUTES.into_iter().collect());

/// Every route whose requests are not all [`Kind::Call`].
const ROUTES: [(&str, Use); 40] = [
    ("/v1/events", Use::Always(Kind::EventStream)),
    ("/v1/sandboxes/{id}/events", Use::Always(Kind::EventStream)),
    ("/v1/sandboxes/{id}/processes/{process}/wait", Use::Always(Kind::EventStream)),
    ("/v1/sandboxes/{id}/processes/{process}/logs", Use::Log),
    ("/v1/sandboxes/{id}/shell", Use::Always(Kind::Socket)),
    ("/v1/sandboxes/{id}/terminal", Use::Always(Kind::Socket)),
    ("/v1/sandboxes/{id}/tcp/{port}", Use::Always(Kind::Socket)),
    ("/v1/sandbox/{id}/pty", Use::Always(Kind::Socket)),
    ("/v1/runs/{id}/shell", Use::Always(Kind::Socket)),
    ("/v1/sandboxes/{id}/exec", Use::Always(Kind::Exec)),
    ("/v1/sandboxes/{id}/sessions/{sid}/exec", Use::Always(Kind::Exec)),
    ("/v1/sandboxes/{id}/contexts/{cid}/run", Use::Always(Kind::Exec)),
    ("/v1/sandbox/{id}/exec", Use::Always(Kind::Exec)),
    ("/v1/runs/{id}/exec", Use::Always(Kind::Exec)),
    ("/v1/sessions/{sid}/exec", Use::Always(Kind::Exec)),
    ("/v1/sandboxes/{id}/files", Use::Files),
    ("/v1/sandboxes/{id}/files/", Use::Files),
    ("/v1/sandboxes/{id}/files/{*path}", Use::Files),
    ("/v1/sandboxes/{id}/sessions/{sid}/files", Use::Files),
    ("/v1/sandboxes/{id}/sessions/{sid}/files/", Use::Files),
    ("/v1/sandboxes/{id}/sessions/{sid}/files/{*path}", Use::Files),
    ("/v1/sessions/{sid}/files", Use::Files),
    ("/v1/sessions/{sid}/files/", Use::Files),
    ("/v1/sessions/{sid}/files/{*path}", Use::Files),
    ("/v1/sandbox/{id}/file/{*path}", Use::Files),
    ("/v1/runs/{id}/files/upload", Use::Always(Kind::Upload)),
    ("/v1/sandbox/{id}/hydrate", Use::Always(Kind::Upload)),
    ("/v1/images/import", Use::Always(Kind::Upload)),
    ("/v1/images/pull", Use::Always(Kind::Upload)),
    ("/v1/runs/{id}/files/download", Use::Always(Kind::Download)),
    ("/v1/sandbox/{id}/persist", Use::Always(Kind::Download)),
    ("/v1/audit", Use::Reads(Kind::Download)),
    ("/v1/runs/{id}/audit", Use::Reads(Kind::Download)),
    ("/v1/sandboxes/{id}/recordings/{recording}", Use::Reads(Kind::Download)),
    ("/v1/sandboxes/{id}/ports/{port}", Use::Counted),
    ("/v1/sandboxes/{id}/ports/{port}/", Use::Counted),
    ("/v1/sandboxes/{id}/ports/{port}/{*path}", Use::Counted),
    ("/v1/runs/{id}/proxy/{port}", Use::Counted),
    ("/v1/runs/{id}/proxy/{port}/", Use::Counted),
    ("/v1/runs/{id}/proxy/{port}/{*path}", Use::Counted),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::native::native;
    use axum::http::{HeaderValue, header};
    use serde_json::Value;

    /// Every documented call with its path as the router has it.
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

    fn kind(method: &Method, route: &str, query: &str, accept: &'static str) -> Option<Kind> {
        let accept = (header::ACCEPT, HeaderValue::from_static(accept));
        let uri = format!("/x{query}").parse().unwrap();
        kind_of(method, route, &uri, &HeaderMap::from_iter([accept]))
    }

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
                assert_ne!(kind, Some(Kind::Call), "{method} {path}");
                assert!(!socket || kind == Some(Kind::Socket), "{method} {path}: {kind:?}");
                lasting += 1;
            }
        }
        assert!(lasting > 20, "{lasting}");
    }

    #[test]
    fn every_route_of_the_table_is_there() {
        let calls = calls();
        for (route, _) in ROUTES {
            // The slash behind a directory is an alias without a description.
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
            (Method::GET, files, "?watch=1", "*/*", Some(Kind::EventStream)),
            (Method::GET, files, "", "*/*", Some(Kind::Download)),
            (Method::PUT, files, "", "*/*", Some(Kind::Upload)),
            (Method::DELETE, files, "", "*/*", Some(Kind::Call)),
            (Method::GET, logs, "", events, Some(Kind::EventStream)),
            (Method::GET, logs, "", "*/*", Some(Kind::Call)),
            (Method::DELETE, recording, "", "*/*", Some(Kind::Call)),
            (Method::DELETE, "/v1/sandboxes/{id}", "", "*/*", Some(Kind::Call)),
            (Method::GET, "/v1/sandboxes/{id}/ports/{port}/", "", "*/*", None),
        ];
        for (method, route, query, accept, expected) in cases {
            assert_eq!(kind(&method, route, query, accept), expected, "{method} {route}{query}");
        }
    }
}
