//! What the layers before the handlers need to know of SWE-ReX's routes. Imports nothing, so that
//! every layer can use it.

/// What the paths of this dialect begin with.
const PREFIX: &str = "/v1/swerex/";

/// How long a request lasts, and what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteUse {
    /// A command runs until it ends.
    Command,
    /// Files are sent.
    Upload,
}

/// The events of the audit log, by the last part of the route; `None` for calls that only read.
const AUDITED: [(&str, Option<&str>); 8] = [
    ("create_session", Some("session.create")),
    ("close_session", Some("session.delete")),
    ("close", Some("session.delete")),
    ("run_in_session", Some("exec.start")),
    ("execute", Some("exec.start")),
    ("read_file", None),
    ("write_file", Some("file.write")),
    ("upload", Some("file.write")),
];

/// Whether a path belongs to this dialect, whose errors have a format of their own and whose clients
/// send the key in `X-API-Key`.
pub(crate) fn owns(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// How long requests to a route last; `None` for a call, or a route of another API.
pub(crate) fn use_of(route: &str) -> Option<RouteUse> {
    match route.strip_prefix(PREFIX)?.rsplit('/').next()? {
        "create_session" | "run_in_session" | "execute" => Some(RouteUse::Command),
        "upload" => Some(RouteUse::Upload),
        _ => None,
    }
}

/// The event of a request that may change something; `None` if the route is of another API.
pub(crate) fn audit_event(route: &str) -> Option<Option<&'static str>> {
    let last = route.strip_prefix(PREFIX)?.rsplit('/').next().unwrap_or_default();
    AUDITED.iter().find(|(name, _)| *name == last).map(|(_, event)| *event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_this_dialect_are_known() {
        for own in ["/v1/swerex/a/is_alive", "/v1/swerex/a/none"] {
            assert!(owns(own), "{own}");
        }
        for other in ["/v1/swerex", "/v1/swerexes/a", "/is_alive", "/v1/sandboxes/a/upload"] {
            assert!(!owns(other), "{other}");
        }
    }

    #[test]
    fn calls_that_change_something_have_events() {
        assert_eq!(audit_event("/v1/swerex/{id}/execute"), Some(Some("exec.start")));
        assert_eq!(audit_event("/v1/swerex/{id}/read_file"), Some(None));
        assert_eq!(audit_event("/v1/sandboxes/{id}/upload"), None);
    }

    #[test]
    fn commands_and_uploads_are_more_than_calls() {
        assert_eq!(use_of("/v1/swerex/{id}/execute"), Some(RouteUse::Command));
        assert_eq!(use_of("/v1/swerex/{id}/upload"), Some(RouteUse::Upload));
        assert_eq!(use_of("/v1/swerex/{id}/read_file"), None);
        assert_eq!(use_of("/v1/runs/{id}/files/upload"), None);
    }
}
