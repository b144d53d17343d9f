//! The code interpreter, which E2B serves on port 49999 of a sandbox: contexts, and code that runs in
//! them. Its errors are plain text.

mod contexts;
mod execute;
mod language;
mod lines;

use crate::app::App;
use crate::dialects::e2b::address::or_gone;
use crate::foundation::error::ApiError;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use isolet_sandbox::SandboxId;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .route("/v1/e2b/{id}/interpreter/health", get(health))
        .route("/v1/e2b/{id}/interpreter/execute", post(execute::execute))
        .route("/v1/e2b/{id}/interpreter/contexts", get(contexts::list).post(contexts::create))
        .route("/v1/e2b/{id}/interpreter/contexts/{cid}", delete(contexts::remove))
        .route("/v1/e2b/{id}/interpreter/contexts/{cid}/restart", post(contexts::restart))
}

/// Contexts start when they are needed, so the interpreter of a running sandbox is always ready.
async fn health() -> &'static str {
    "OK"
}

/// An error as text.
#[derive(Debug)]
pub(crate) struct TextError(ApiError);

impl TextError {
    /// The same for a sandbox that does not run any more: [`or_gone`].
    fn or_gone(self, sandbox: &SandboxId) -> Self {
        Self(or_gone(self.0, sandbox))
    }
}

impl<T: Into<ApiError>> From<T> for TextError {
    fn from(failure: T) -> Self {
        Self(failure.into())
    }
}

impl IntoResponse for TextError {
    fn into_response(self) -> Response {
        let Self(failure) = self;
        if failure.code == "no_context" {
            // The text by which E2B's users know it.
            return (StatusCode::NOT_FOUND, failure.message).into_response();
        }
        let text = format!("{}: {}", failure.message, failure.hint);
        (failure.status(), text).into_response()
    }
}
