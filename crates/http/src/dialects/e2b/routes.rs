//! What the layers before the handlers need to know of E2B's routes. Imports nothing of this crate, so
//! that every layer can use it.

use axum::http::HeaderName;

/// Contains the token of the next page of a list.
pub(crate) const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-next-token");

/// The token of the page after a sandbox, by its time of creation as RFC 3339, which sorts as text.
pub(crate) fn started_token(started_at: &str, id: &str) -> String {
    format!("{started_at}_{id}")
}

/// The paths of the control plane, each with everything below it.
const CONTROL: [&str; 9] = [
    "/sandboxes",
    "/v2/sandboxes",
    "/snapshots",
    "/templates",
    "/v2/templates",
    "/v3/templates",
    "/volumes",
    "/secrets",
    "/teams",
];

/// How long a request to a route lasts, and what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteUse {
    /// The output of a program, until it ends.
    Program,
    /// Events, until the client leaves.
    Events,
    /// The content of files, in a direction that depends on the method.
    Files,
    /// A stream from the client.
    Upload,
}

/// Routes whose requests last longer than a call.
const USES: [(&str, RouteUse); 7] = [
    ("/templates/{snapshot}/files/{hash}", RouteUse::Files),
    ("/v1/e2b/{id}/process.Process/Start", RouteUse::Program),
    ("/v1/e2b/{id}/process.Process/Connect", RouteUse::Events),
    ("/v1/e2b/{id}/process.Process/StreamInput", RouteUse::Upload),
    ("/v1/e2b/{id}/filesystem.Filesystem/WatchDir", RouteUse::Events),
    ("/v1/e2b/{id}/files", RouteUse::Files),
    ("/v1/e2b/{id}/interpreter/execute", RouteUse::Program),
];

/// The events of the audit log, by the last part of the route; `None` for calls that only read.
const AUDITED: [(&str, Option<&str>); 28] = [
    ("templates", Some("image.build")),
    ("{build}", Some("image.build")),
    ("tags", Some("image.tag")),
    ("{hash}", Some("image.upload")),
    ("{snapshot}", Some("snapshot.delete")),
    ("connect", Some("sandbox.change")),
    ("timeout", Some("sandbox.change")),
    ("refreshes", Some("sandbox.change")),
    ("network", Some("network.change")),
    ("Start", Some("process.start")),
    ("Connect", None),
    ("List", None),
    ("Update", None),
    ("StreamInput", Some("process.stdin")),
    ("SendInput", Some("process.stdin")),
    ("SendSignal", Some("process.signal")),
    ("CloseStdin", Some("process.stdin")),
    ("Stat", None),
    ("MakeDir", Some("file.order")),
    ("Move", Some("file.order")),
    ("ListDir", None),
    ("Remove", Some("file.remove")),
    ("WatchDir", None),
    ("CreateWatcher", None),
    ("GetWatcherEvents", None),
    ("RemoveWatcher", None),
    ("files", Some("file.write")),
    ("execute", Some("context.run")),
];

/// Whether a path belongs to this dialect, whose errors have a format of their own.
pub(crate) fn owns(path: &str) -> bool {
    is_data_plane(path) || is_control_plane(path)
}

/// Whether a path belongs to the data plane of a sandbox.
pub(crate) fn is_data_plane(path: &str) -> bool {
    path.starts_with(super::address::PREFIX)
}

fn is_control_plane(path: &str) -> bool {
    CONTROL.iter().any(|prefix| {
        let rest = path.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// How long requests to a route last; `None` for a call.
pub(crate) fn use_of(route: &str) -> Option<RouteUse> {
    USES.iter().find(|(known, _)| *known == route).map(|(_, used)| *used)
}

/// The event of a request that may change something; `None` if this dialect has no name of its own
/// for it.
pub(crate) fn audit_event(route: &str) -> Option<Option<&'static str>> {
    if !owns(route) {
        return None;
    }
    let last = route.rsplit('/').next().unwrap_or_default();
    AUDITED.iter().find(|(name, _)| *name == last).map(|(_, event)| *event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_this_dialect_are_known() {
        for own in ["/sandboxes", "/v2/sandboxes/a/connect", "/v1/e2b/a/files", "/templates/x"] {
            assert!(owns(own), "{own}");
        }
        for other in ["/v1/sandboxes", "/sandboxes2", "/health", "/files", "/v1/sandbox/a", "/"] {
            assert!(!owns(other), "{other}");
        }
    }

    #[test]
    fn calls_that_change_something_have_events() {
        assert_eq!(audit_event("/v1/e2b/{id}/process.Process/Start"), Some(Some("process.start")));
        assert_eq!(audit_event("/v1/e2b/{id}/process.Process/List"), Some(None));
        assert_eq!(audit_event("/v1/sandboxes/{id}/files"), None);
        assert_eq!(audit_event("/sandboxes"), None);
    }
}
