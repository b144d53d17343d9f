//! How the node that answers a route is found. The only place that decides this by route.
//!
//! A route with `{id}` is about that sandbox, so a new route below a sandbox needs no entry unless it
//! creates the sandbox. A test refuses routes about which this module says nothing.

use axum::http::Method;

/// How the node that answers a request is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Routing {
    /// The node that received the request.
    Local,
    /// The owner of the sandbox in the path.
    Sandbox(Creates),
    /// The owner of the sandbox in the body.
    Body(BodyField),
    /// The owner of the sandbox of the session in the path.
    Session,
    /// The node that has the snapshot in the path.
    Snapshot,
    /// The node that has the snapshot in the member `snapshot` of the body.
    BodySnapshot,
    /// All nodes; their lists become one.
    List(ListShape),
    /// All nodes; their events become one stream.
    Events,
}

impl Routing {
    /// Whether a request may create the sandbox that it names.
    pub(crate) fn may_create(self) -> bool {
        match self {
            Self::Sandbox(creates) => creates != Creates::Never,
            Self::Body(field) => field.creates,
            _ => false,
        }
    }
}

/// Whether a request creates its sandbox if it does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Creates {
    Never,
    IfMissing,
    /// Unless the client only attaches to a running terminal.
    Terminal,
}

/// Which sandbox a body names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyField {
    /// The member that holds the id.
    pub(crate) name: Option<&'static str>,
    pub(crate) missing: MissingField,
    /// Whether the request creates the sandbox.
    pub(crate) creates: bool,
}

/// What it means that a body names no sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingField {
    /// The handler refuses the request.
    Refused,
    /// A sandbox with a generated id: `sb_` and 26 letters.
    Generated,
    /// A sandbox with a generated id: 26 letters.
    GeneratedBare,
    /// The tenant's default sandbox.
    Home,
}

/// The shape of a list, whose entries are sorted by `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListShape {
    /// Pages of an array. The number is the default size of a page.
    Pages(usize),
    /// All entries, in this member of an object.
    Member(&'static str),
    /// All entries, in an array.
    Array,
    /// Pages of an array sorted by `startedAt` and `sandboxID`, the latest first unless the query has
    /// `order=asc`. Both of the last entry are the token of the next page.
    Started(usize),
}

/// Routes below a sandbox that create it if it does not exist.
const CREATING: [(&str, &str); 16] = [
    ("POST", "/v1/sandboxes/{id}/exec"),
    ("POST", "/v1/sandboxes/{id}/sessions"),
    ("POST", "/v1/sandboxes/{id}/sessions/{sid}/exec"),
    ("POST", "/v1/sandboxes/{id}/processes"),
    ("POST", "/v1/sandboxes/{id}/contexts"),
    ("POST", "/v1/sandboxes/{id}/contexts/{cid}/run"),
    ("GET", "/v1/sandboxes/{id}/shell"),
    ("POST", "/v1/sandboxes/{id}/files"),
    ("PUT", "/v1/sandboxes/{id}/files/{*path}"),
    ("POST", "/v1/sandboxes/{id}/sessions/{sid}/files"),
    ("PUT", "/v1/sandboxes/{id}/sessions/{sid}/files/{*path}"),
    ("POST", "/v1/sandbox/{id}/exec"),
    ("POST", "/v1/sandbox/{id}/hydrate"),
    ("POST", "/v1/sandbox/{id}/session"),
    ("POST", "/v1/sandbox/{id}/tunnel/{port}"),
    ("PUT", "/v1/sandbox/{id}/file/{*path}"),
];

/// Terminals, which create the sandbox unless the client only attaches to a running one.
const TERMINALS: [&str; 2] = ["/v1/sandboxes/{id}/terminal", "/v1/sandbox/{id}/pty"];

const fn body(name: &'static str, missing: MissingField, creates: bool) -> Routing {
    Routing::Body(BodyField { name: Some(name), missing, creates })
}

const fn generated(missing: MissingField) -> Routing {
    Routing::Body(BodyField { name: None, missing, creates: true })
}

/// Routes without a sandbox in their path that another node may have to answer.
const ELSEWHERE: [(&str, &str, Routing); 17] = [
    ("POST", "/v1/sandboxes", body("id", MissingField::Generated, true)),
    ("POST", "/v1/runs", generated(MissingField::Generated)),
    ("POST", "/v1/runs/restore", generated(MissingField::Generated)),
    ("POST", "/v1/sandbox", generated(MissingField::GeneratedBare)),
    ("POST", "/sandboxes", generated(MissingField::GeneratedBare)),
    ("POST", "/v2/sandboxes", generated(MissingField::GeneratedBare)),
    ("POST", "/v1/sessions", body("sandbox_id", MissingField::Home, true)),
    ("POST", "/v1/tickets", body("sandbox", MissingField::Refused, false)),
    ("POST", "/v1/images", Routing::BodySnapshot),
    ("GET", "/v1/sandboxes", Routing::List(ListShape::Pages(100))),
    ("GET", "/v1/runs", Routing::List(ListShape::Pages(1000))),
    ("GET", "/v1/sessions", Routing::List(ListShape::Pages(1000))),
    ("GET", "/v1/snapshots", Routing::List(ListShape::Member("snapshots"))),
    ("GET", "/v1/events", Routing::Events),
    ("GET", "/v2/sandboxes", Routing::List(ListShape::Started(100))),
    ("GET", "/sandboxes", Routing::List(ListShape::Array)),
    ("GET", "/snapshots", Routing::List(ListShape::Array)),
];

/// How the node that answers a request is found. `route` is the route's pattern.
pub(crate) fn routing(method: &Method, route: &str) -> Routing {
    // HEAD is answered by the handler of GET.
    let method = if *method == Method::HEAD { Method::GET.as_str() } else { method.as_str() };
    if route.contains("/{id}") {
        if TERMINALS.contains(&route) {
            return Routing::Sandbox(Creates::Terminal);
        }
        let creates = CREATING.contains(&(method, route));
        return Routing::Sandbox(if creates { Creates::IfMissing } else { Creates::Never });
    }
    if route.starts_with("/v1/sessions/{sid}") {
        return Routing::Session;
    }
    if route.starts_with("/v1/snapshots/{snapshot}") || route == "/templates/{snapshot}" {
        return Routing::Snapshot;
    }
    let found = ELSEWHERE.iter().find(|(of, path, _)| *of == method && *path == route);
    found.map_or(Routing::Local, |(_, _, routing)| *routing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::native::native;

    /// Routes that the node that received the request answers, and why.
    const LOCAL: [(&str, &str); 52] = [
        ("GET /health", "is about this node"),
        ("GET /metrics", "is about this node"),
        ("GET /v1/audit", "each node has a log of its own"),
        ("GET /v1/images", "each node has images of its own"),
        ("GET /v1/images/aliases", "each node has a configuration of its own"),
        ("GET /v1/images/export", "each node has images of its own"),
        ("GET /v1/images/{*image}", "each node has images of its own"),
        ("DELETE /v1/images/{*image}", "each node has images of its own"),
        ("POST /v1/images/gc", "each node has images of its own"),
        ("POST /v1/images/import", "each node has images of its own"),
        ("POST /v1/images/pull", "each node has images of its own"),
        ("POST /v1/images/tag", "each node has images of its own"),
        ("GET /v1/images/builds", "each node has builds of its own"),
        ("POST /v1/images/builds", "each node has builds of its own"),
        ("GET /v1/images/builds/{build}", "each node has builds of its own"),
        ("DELETE /v1/images/builds/{build}", "each node has builds of its own"),
        ("GET /v1/images/builds/{build}/log", "each node has builds of its own"),
        ("GET /v1/images/builds/files/{files}", "each node has builds of its own"),
        ("PUT /v1/images/builds/files/{files}", "each node has builds of its own"),
        ("GET /v1/keys", "every node has all keys"),
        ("GET /v1/keys/current", "is about the request"),
        ("POST /v1/keys", "every node gives its keys to the others"),
        ("DELETE /v1/keys/{key_id}", "every node gives its keys to the others"),
        ("GET /v1/network-profiles", "every node has all profiles"),
        ("GET /v1/network-profiles/{name}", "every node has all profiles"),
        ("PUT /v1/network-profiles/{name}", "every node has all profiles"),
        ("DELETE /v1/network-profiles/{name}", "every node has all profiles"),
        ("GET /v1/webhooks", "every node has all webhooks"),
        ("POST /v1/webhooks", "every node gives its webhooks to the others"),
        ("GET /v1/webhooks/{webhook}", "every node has all webhooks"),
        ("PATCH /v1/webhooks/{webhook}", "every node gives its webhooks to the others"),
        ("DELETE /v1/webhooks/{webhook}", "every node gives its webhooks to the others"),
        ("POST /v1/webhooks/{webhook}/rotate", "every node gives its webhooks to the others"),
        ("POST /v1/webhooks/{webhook}/test", "every node can test a webhook"),
        ("GET /v1/nodes", "every node knows all nodes"),
        ("GET /v1/nodes/{node}", "every node knows all nodes"),
        ("DELETE /v1/nodes/{node}", "every node can write the records of nodes"),
        ("POST /v1/nodes/{node}/cordon", "every node can write the records of nodes"),
        ("POST /v1/nodes/{node}/uncordon", "every node can write the records of nodes"),
        ("POST /v1/nodes/{node}/declare-dead", "every node can write the records of nodes"),
        ("POST /v1/nodes/{node}/drain", "every node asks that node"),
        ("GET /v1/nodes/{node}/drain", "every node asks that node"),
        ("GET /v1/pool/stats", "each node has a warm pool of its own"),
        ("POST /v1/pool/prime", "each node has a warm pool of its own"),
        ("POST /v1/pool/shutdown-prewarmed", "each node has a warm pool of its own"),
        ("GET /v1/runs/history", "each node has records of its own"),
        ("GET /v1/usage", "each node has records of its own"),
        ("DELETE /v1/sessions", "each node ends the sessions of its own sandboxes"),
        ("GET /v1/store/snapshots", "all nodes have the same store"),
        ("GET /v1/store/snapshots/{snapshot}", "all nodes have the same store"),
        ("DELETE /v1/store/snapshots/{snapshot}", "all nodes have the same store"),
        ("POST /v1/store/snapshots/{snapshot}/pull", "pulls to this node"),
    ];

    /// Every documented call, with its path in the router's syntax.
    fn calls() -> Vec<(Method, String)> {
        let document = serde_json::to_value(native().into_openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap().clone();
        let calls = paths.into_iter().flat_map(|(path, calls)| {
            let methods: Vec<String> = calls.as_object().unwrap().keys().cloned().collect();
            methods
                .into_iter()
                .map(move |method| (method.to_uppercase().parse().unwrap(), path.clone()))
        });
        calls.collect()
    }

    #[test]
    fn every_route_is_forwarded_or_local_for_a_reason() {
        for (method, path) in calls() {
            let call = format!("{method} {path}");
            let reason = LOCAL.iter().find(|(known, _)| *known == call);
            let local = routing(&method, &path) == Routing::Local;
            assert_eq!(local, reason.is_some(), "{call}: a route is either in LOCAL or forwarded");
        }
    }

    #[test]
    fn every_entry_is_a_route() {
        let calls: Vec<String> =
            calls().into_iter().map(|(method, path)| format!("{method} {path}")).collect();
        let creating = CREATING.iter().map(|(method, path)| format!("{method} {path}"));
        let elsewhere = ELSEWHERE.iter().map(|(method, path, _)| format!("{method} {path}"));
        let terminals = TERMINALS.iter().map(|path| format!("GET {path}"));
        let local = LOCAL.iter().map(|(call, _)| (*call).to_owned());
        for entry in creating.chain(elsewhere).chain(terminals).chain(local) {
            // The document of this server does not describe E2B's calls.
            let path = entry.split(' ').nth(1).unwrap();
            if crate::dialects::e2b::routes::owns(path) {
                continue;
            }
            assert!(calls.contains(&entry), "{entry}");
        }
    }

    #[test]
    fn a_sandbox_in_the_path_decides() {
        let of = |method: &Method, path: &str| routing(method, path);
        let never = Routing::Sandbox(Creates::Never);
        assert_eq!(of(&Method::GET, "/v1/sandboxes/{id}"), never);
        assert_eq!(of(&Method::DELETE, "/v1/runs/{id}"), never);
        assert_eq!(of(&Method::GET, "/v1/sandboxes/{id}/a-new-route"), never);
        let creates = Routing::Sandbox(Creates::IfMissing);
        assert_eq!(of(&Method::POST, "/v1/sandboxes/{id}/exec"), creates);
        assert_eq!(of(&Method::HEAD, "/v1/sandboxes"), of(&Method::GET, "/v1/sandboxes"));
        assert_eq!(of(&Method::GET, "/v1/sessions/{sid}/files/{*path}"), Routing::Session);
        assert_eq!(of(&Method::POST, "/v1/snapshots/{snapshot}/push"), Routing::Snapshot);
    }
}
