//! The bridge's success and error responses.

use crate::foundation::error::ApiError;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// An error in the bridge's format.
#[derive(Debug)]
pub(crate) struct BridgeError(pub(super) ApiError);

/// An error of the Cloudflare dialect.
#[derive(Serialize, ToSchema)]
#[schema(as = BridgeError)]
pub(crate) struct RefusalView {
    /// What went wrong, for people.
    error: String,
    /// The error code, for programs.
    code: &'static str,
}

/// Confirms that a call succeeded.
#[derive(Serialize, ToSchema)]
#[schema(as = BridgeDone)]
pub(crate) struct Done {
    /// Always `true`; a failure is an error response.
    ok: bool,
}

impl Done {
    pub(super) const OK: axum::Json<Self> = axum::Json(Self { ok: true });
}

impl BridgeError {
    /// Replaces the error code.
    pub(super) fn coded(self, code: &'static str) -> Self {
        Self(ApiError::new(self.0.status(), code, self.0.message, self.0.hint))
    }

    pub(super) fn outside(subject: &str) -> Self {
        let message = format!("{subject} must resolve to a location within /workspace");
        let hint = "name a path below /workspace";
        Self(ApiError::new(StatusCode::FORBIDDEN, "invalid_request", message, hint))
    }
}

impl From<ApiError> for BridgeError {
    fn from(failure: ApiError) -> Self {
        let bad = failure.status() == StatusCode::BAD_REQUEST;
        let same = Self(failure);
        if bad { same.coded("invalid_request") } else { same }
    }
}

impl From<isolet_sandbox::BadInput> for BridgeError {
    fn from(error: isolet_sandbox::BadInput) -> Self {
        ApiError::from(error).into()
    }
}

impl From<isolet_sandbox::Error> for BridgeError {
    fn from(error: isolet_sandbox::Error) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for BridgeError {
    fn into_response(self) -> Response {
        let body = RefusalView { error: self.0.message.clone(), code: self.0.code };
        // Status and headers are those of the native error.
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        (parts.status, parts.headers, axum::Json(body)).into_response()
    }
}
