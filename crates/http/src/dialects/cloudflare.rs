//! The bridge of Cloudflare's sandboxes, `/v1/sandbox`: so far its terminal.

mod pty;

use crate::{error::Failure, server::App};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::SandboxId;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Every call that is carried out.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(pty::pty))
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

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = RefusalView { error: self.0.message.clone(), code: self.0.code };
        // Its status and headers are the native ones.
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.headers.remove(axum::http::header::CONTENT_LENGTH);
        (parts.status, parts.headers, axum::Json(body)).into_response()
    }
}

/// The bridge's ids are narrower than ours.
fn sandbox(id: &str) -> Result<SandboxId, Refusal> {
    let letters = |b: u8| b.is_ascii_lowercase() || matches!(b, b'2'..=b'7');
    let id = Some(id).filter(|id| id.bytes().all(letters)).and_then(|id| SandboxId::parse(id).ok());
    id.ok_or_else(|| {
        let status = axum::http::StatusCode::BAD_REQUEST;
        let hint = "take the id that a create has answered";
        Refusal(Failure::new(status, "invalid_request", "id: must match [a-z2-7]{1,128}", hint))
    })
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
}
