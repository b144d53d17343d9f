//! Ids and paths in the bridge's requests.

use crate::dialects::cloudflare::error::BridgeError;
use crate::foundation::error::ApiError;
use crate::foundation::input;
use axum::http::{HeaderMap, StatusCode};
use isolet_sandbox::{SandboxId, SessionId};

/// Parses a sandbox id. The bridge allows fewer characters than this server.
pub(super) fn sandbox(id: &str) -> Result<SandboxId, BridgeError> {
    let letters = |b: u8| b.is_ascii_lowercase() || matches!(b, b'2'..=b'7');
    let id = Some(id).filter(|id| id.bytes().all(letters)).and_then(|id| SandboxId::parse(id).ok());
    id.ok_or_else(|| {
        let hint = "use the id from the response of the create call";
        let message = "id: must match [a-z2-7]{1,128}";
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", message, hint).into()
    })
}

/// The session in the header; older clients send `X-Session-Id`.
pub(super) fn session(headers: &HeaderMap) -> Result<Option<SessionId>, BridgeError> {
    let named = headers.get("session-id").or_else(|| headers.get("x-session-id"));
    let id = named.map(|named| SessionId::parse(named.to_str().unwrap_or(""))).transpose();
    Ok(id.map_err(input::bad_id)?)
}

/// Normalizes a path in the workspace, which relative paths begin in; `None` for a path outside.
/// This only considers the text of the path: the sandbox resolves symbolic links.
pub(super) fn within(path: &[u8]) -> Option<Vec<u8>> {
    let mut all: Vec<&[u8]> = if path.starts_with(b"/") { vec![] } else { vec![b"workspace"] };
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(all.pop()),
            part => all.push(part),
        }
    }
    let inside = all.first() == Some(&&b"workspace"[..]);
    inside.then(|| [b"/", all.join(&b'/').as_slice()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_bridge() {
        for good in ["a", "abc234567xyz", &"a".repeat(128)] {
            assert!(sandbox(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "a1", "a8", "a-b", "sb_a", "a.b", "ä", &"a".repeat(129)] {
            assert_eq!(sandbox(bad).unwrap_err().0.code, "invalid_request", "{bad}");
        }
    }

    #[test]
    fn paths_stay_in_the_workspace() {
        let cases = [
            ("/workspace", Some("/workspace")),
            ("//workspace/./a//b/", Some("/workspace/a/b")),
            ("src", Some("/workspace/src")),
            ("", Some("/workspace")),
            ("/workspace/a/../b", Some("/workspace/b")),
            ("/tmp/../workspace/a", Some("/workspace/a")),
            ("..", None),
            ("../workspace2", None),
            ("/workspace2/a", None),
            ("/workspace/../etc/passwd", None),
            ("/", None),
            ("/etc/passwd", None),
        ];
        for (path, expected) in cases {
            let found = within(path.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{path}");
        }
    }
}
