//! Errors of the API name its routes. A model has no routes, but tools: their names replace those of
//! the routes.

use serde_json::Value;

/// What an error of the API says, and what it says to a client of the tools. Longer texts precede those
/// that they begin with.
const NAMES: [(&str, &str); 18] = [
    ("POST /v1/sandboxes/{id}/resume", "sandbox_resume"),
    ("POST /v1/sandboxes/{id}/links", "port_link"),
    ("POST /v1/sandboxes/{id}/fork", "sandbox_fork"),
    ("POST /v1/sandboxes/{id}/restore", "snapshot_restore"),
    ("with POST /v1/sandboxes/{id}/recover", "outside of these tools"),
    ("DELETE /v1/sandboxes/{id}", "sandbox_delete"),
    ("GET /v1/sandboxes/{id}", "sandbox_info"),
    ("POST /v1/sandboxes {\"snapshot\": …}", "sandbox_create with `snapshot`"),
    ("POST /v1/sandboxes", "sandbox_create"),
    ("GET /v1/sandboxes", "sandbox_list"),
    ("GET /v1/snapshots", "snapshot_list"),
    ("GET …/processes", "process_list"),
    ("GET …/contexts", "context_list"),
    ("add ?recursive=1", "set `recursive`"),
    ("with POST /v1/images/pull", "outside of these tools"),
    ("with DELETE /v1/images/{image} or `isolet image rm`", "outside of these tools"),
    ("list them with GET /v1/network-profiles", "ask the operator of the server for their names"),
    ("list them with GET /v1/store/snapshots", "ask the operator of the server for their ids"),
];

/// Replaces routes in the message and the hint of an error.
pub(crate) fn name_tools(error: &mut Value) {
    for field in ["message", "hint"] {
        if let Some(Value::String(text)) = error.get_mut(field) {
            *text = with_tools(text);
        }
    }
}

fn with_tools(text: &str) -> String {
    let mut text = text.to_owned();
    for (route, tool) in NAMES {
        if text.contains(route) {
            text = text.replace(route, tool);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools;
    use serde_json::json;

    #[test]
    fn hints_name_tools_instead_of_routes() {
        let mut error = json!({
            "error": "no_sandbox",
            "message": "no sandbox \"a\"",
            "hint": "create it with POST /v1/sandboxes",
        });
        name_tools(&mut error);
        assert_eq!(error["hint"], "create it with sandbox_create");
        let paused = "resume it with POST /v1/sandboxes/{id}/resume, or set auto_resume";
        assert_eq!(with_tools(paused), "resume it with sandbox_resume, or set auto_resume");
        let restore = "create a sandbox from it instead: POST /v1/sandboxes {\"snapshot\": …}";
        assert_eq!(
            with_tools(restore),
            "create a sandbox from it instead: sandbox_create with `snapshot`"
        );
    }

    #[test]
    fn every_named_tool_exists() {
        let router = tools::router();
        for (_, name) in NAMES {
            let name = name.split(' ').next().unwrap_or_default();
            assert!(!name.contains('_') || router.has_route(name), "{name}");
        }
    }
}
