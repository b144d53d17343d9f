//! The bridge of Cloudflare's sandboxes, `/v1/sandbox`: what their clients outside of Workers call.

mod exec;
mod files;
mod missing;
mod pool;
mod pty;
mod sandboxes;
mod sessions;
mod tunnel;
mod workspace;

pub(crate) use exec::words;

use crate::{error::Failure, input, server::App};
use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use isolet_sandbox::{SandboxId, SessionId};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Every call that is carried out, and the others with their reasons.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sandboxes::create))
        .routes(routes!(sandboxes::delete))
        .routes(routes!(sandboxes::running))
        .routes(routes!(exec::exec))
        .routes(routes!(files::read, files::write))
        .routes(routes!(pty::pty))
        .routes(routes!(workspace::persist))
        .routes(routes!(workspace::hydrate))
        .routes(routes!(sessions::create))
        .routes(routes!(sessions::delete))
        .routes(routes!(tunnel::open, tunnel::close))
        .routes(routes!(pool::stats))
        .routes(routes!(pool::prime))
        .routes(routes!(pool::renew))
        .merge(missing::router())
}

/// Whether an address is one of the bridge's, whose refusals are in its own words.
pub(crate) fn owns(path: &str) -> bool {
    let rest = path.strip_prefix("/v1/sandbox").or_else(|| path.strip_prefix("/v1/pool"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What the bridge answers when something was not done.
#[derive(Debug)]
pub(crate) struct Refusal(Failure);

#[derive(Serialize, ToSchema)]
pub(crate) struct RefusalView {
    /// For people.
    error: String,
    /// For programs.
    code: &'static str,
}

/// It was done.
#[derive(Serialize, ToSchema)]
pub(crate) struct Done {
    /// Always `true`.
    ok: bool,
}

impl Done {
    const OK: axum::Json<Self> = axum::Json(Self { ok: true });
}

impl Refusal {
    /// The same under another code.
    fn coded(self, code: &'static str) -> Self {
        Self(Failure::new(self.0.status(), code, self.0.message, self.0.hint))
    }

    fn outside(what: &str) -> Self {
        let message = format!("{what} must resolve to a location within /workspace");
        let hint = "name a path below /workspace";
        Self(Failure::new(StatusCode::FORBIDDEN, "invalid_request", message, hint))
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let bad = failure.status() == StatusCode::BAD_REQUEST;
        let same = Self(failure);
        if bad { same.coded("invalid_request") } else { same }
    }
}

impl From<isolet_sandbox::Error> for Refusal {
    fn from(error: isolet_sandbox::Error) -> Self {
        Failure::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = RefusalView { error: self.0.message.clone(), code: self.0.code };
        // Its status and headers are the native ones.
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        (parts.status, parts.headers, axum::Json(body)).into_response()
    }
}

/// The bridge's ids are narrower than ours.
fn sandbox(id: &str) -> Result<SandboxId, Refusal> {
    let letters = |b: u8| b.is_ascii_lowercase() || matches!(b, b'2'..=b'7');
    let id = Some(id).filter(|id| id.bytes().all(letters)).and_then(|id| SandboxId::parse(id).ok());
    id.ok_or_else(|| {
        let hint = "take the id that a create has answered";
        let message = "id: must match [a-z2-7]{1,128}";
        Failure::new(StatusCode::BAD_REQUEST, "invalid_request", message, hint).into()
    })
}

/// The session that a header names; earlier clients say `X-Session-Id`.
fn session(headers: &HeaderMap) -> Result<Option<SessionId>, Refusal> {
    let named = headers.get("session-id").or_else(|| headers.get("x-session-id"));
    let id = named.map(|named| SessionId::parse(named.to_str().unwrap_or(""))).transpose();
    Ok(id.map_err(input::bad_id)?)
}

/// A path within the workspace, with neither `.` nor `..` in it; `None` for any other. One that is
/// relative begins there. This is by its words alone: where links lead, the sandbox decides.
fn within(path: &[u8]) -> Option<Vec<u8>> {
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

    #[test]
    fn the_bridges_addresses_are_known() {
        for own in ["/v1/sandbox", "/v1/sandbox/a/exec", "/v1/pool/stats"] {
            assert!(owns(own), "{own}");
        }
        for other in ["/v1/sandboxes", "/v1/sandboxes/a", "/v1/poolside", "/"] {
            assert!(!owns(other), "{other}");
        }
    }
}
