//! What a route needs of its caller, by its path.

/// Where the tools of the Model Context Protocol are.
pub(crate) const MCP_PATH: &str = "/mcp";

/// Whether a path leads into a program: whoever may only read may not go there, since what a GET
/// does is that program's to say.
pub(crate) fn forwards_to_program(path: &str) -> bool {
    let mut parts = path.strip_prefix("/v1/").unwrap_or_default().split('/');
    let (under, _, what, port) = (parts.next(), parts.next(), parts.next(), parts.next());
    let way = (under, what);
    port.is_some()
        && matches!(way, (Some("sandboxes"), Some("ports" | "tcp")) | (Some("runs"), Some("proxy")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_in_is_known_by_its_path() {
        for way in [
            "/v1/sandboxes/a/ports/1",
            "/v1/sandboxes/a/ports/",
            "/v1/sandboxes/a/ports/1/x",
            "/v1/sandboxes/a/tcp/1",
            "/v1/runs/a/proxy/1/x",
        ] {
            assert!(forwards_to_program(way), "{way}");
        }
        for other in [
            "/v1/sandboxes/a/ports",
            "/v1/sandboxes/a/files/ports/1",
            "/v1/runs/a/files",
            "/v1/sandboxes",
            "/",
        ] {
            assert!(!forwards_to_program(other), "{other}");
        }
    }
}
