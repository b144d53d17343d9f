//! The error response: a code for programs, a message, and what to do next.

pub(crate) mod agent;
mod build;
mod image;
mod service;
mod webhook;

use crate::foundation::extensions::ErrorCode;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// The longest message, in bytes, so that a response never repeats a whole request.
const MESSAGE_BYTES_MAX: usize = 400;

/// An error.
///
/// `error` is a code for programs and stays the same between versions; new codes may be added.
/// `message` and `hint` are for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ApiError {
    #[serde(skip)]
    status: u16,
    /// When to retry, in seconds, for 429 and 503.
    #[serde(skip)]
    retry_after_s: u64,
    /// The error code, such as `no_sandbox`.
    #[serde(rename = "error")]
    pub(crate) code: &'static str,
    /// What went wrong, at most 400 bytes.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: String,
}

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            message.push('…');
        }
        Self { status: status.as_u16(), retry_after_s: 1, code, message, hint: hint.into() }
    }

    /// Sets when the client should retry, for 429 and 503. It is a second otherwise.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after_s: seconds, ..self }
    }

    /// 400: the request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        let hint = "see /v1/openapi.json for the fields of this call";
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message, hint)
    }

    /// 400: a field is invalid.
    pub(crate) fn bad_field(name: &str, reason: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad_field",
            format!("{name}: {reason}"),
            format!("change {name} and send the request again"),
        )
    }

    /// 400: a field that this version does not support.
    pub(crate) fn field_not_implemented(name: &str, reason: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "not_built",
            format!("{name}: {reason}"),
            format!("leave {name} out"),
        )
    }

    /// 501: a route that this version does not support.
    pub(crate) fn not_implemented(reason: &str) -> Self {
        let hint = "this call exists in the protocol, but this server does not have it";
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_built", reason, hint)
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let code = ErrorCode(self.code);
        let retry_after_s = self.retry_after_s;
        let mut response = (status, Json(self)).into_response();
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_s));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_truncated() {
        let failure = ApiError::bad_request("ü".repeat(100_000));
        assert!(failure.message.len() <= MESSAGE_BYTES_MAX + 3);
    }
}
