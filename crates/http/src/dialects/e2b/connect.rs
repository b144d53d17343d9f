//! The Connect protocol with JSON, as far as E2B's SDKs use it: unary calls, server streams and one
//! client stream.
//!
//! A unary call is a JSON body in both directions. A stream consists of *envelopes*: a byte of flags,
//! the length of the message as four bytes (big-endian), and the message. The last envelope of a
//! response has the flag [`envelope::END_STREAM`] and contains the error, if there is one; its HTTP
//! status is always 200.

pub(super) mod envelope;
pub(super) mod stream;
pub(super) mod unary;

use crate::dialects::e2b::error::message;
use crate::foundation::error::ApiError;
use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::{AgentError, BadInput, Error};
use serde::Serialize;
use std::time::Duration;

/// The longest message, in bytes: 1 MiB of input, in base64, or a command of 1 MiB, escaped.
pub(super) const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The codes of errors that this server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

impl Code {
    /// The HTTP status of a unary response with this code.
    fn status(self) -> StatusCode {
        use StatusCode as S;
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => S::BAD_REQUEST,
            Self::DeadlineExceeded => S::GATEWAY_TIMEOUT,
            Self::NotFound => S::NOT_FOUND,
            Self::AlreadyExists => S::CONFLICT,
            Self::PermissionDenied => S::FORBIDDEN,
            Self::ResourceExhausted => S::TOO_MANY_REQUESTS,
            Self::Unimplemented => S::NOT_IMPLEMENTED,
            Self::Internal | Self::DataLoss => S::INTERNAL_SERVER_ERROR,
            Self::Unavailable => S::SERVICE_UNAVAILABLE,
            Self::Unauthenticated => S::UNAUTHORIZED,
        }
    }

    fn of(failure: &ApiError) -> Self {
        match (failure.status().as_u16(), failure.code) {
            (_, "exists") => Self::AlreadyExists,
            (
                _,
                "sandbox_destroyed" | "sandbox_slept" | "sandbox_paused" | "sandbox_failed"
                | "agent_lost",
            ) => Self::Unavailable,
            (_, "not_built") => Self::Unimplemented,
            (_, "wrong_kind" | "bad_cwd") => Self::InvalidArgument,
            (400 | 413 | 415 | 422, _) => Self::InvalidArgument,
            (401, _) => Self::Unauthenticated,
            (403, _) => Self::PermissionDenied,
            (404 | 410, _) => Self::NotFound,
            (409, _) => Self::FailedPrecondition,
            (408 | 504, _) => Self::DeadlineExceeded,
            // The SDKs report `ResourceExhausted` as a limit on the rate of requests, so a full disk is
            // `Internal`.
            (429, _) => Self::ResourceExhausted,
            (501, _) => Self::Unimplemented,
            (502 | 503, _) => Self::Unavailable,
            _ => Self::Internal,
        }
    }
}

/// An error of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RpcError {
    code: Code,
    message: String,
    /// The HTTP status, where it differs from that of the code.
    #[serde(skip)]
    status: Option<u16>,
    /// Whether the sandbox has ended during the call.
    #[serde(skip)]
    is_gone: bool,
}

impl RpcError {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), status: None, is_gone: false }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The request has a media type or an encoding that this server does not read.
    pub(super) fn unsupported(message: impl Into<String>) -> Self {
        let status = Some(StatusCode::UNSUPPORTED_MEDIA_TYPE.as_u16());
        Self { status, ..Self::new(Code::InvalidArgument, message) }
    }

    /// Whether the sandbox ended during the call. E2B breaks the connection then, by which clients
    /// tell it from other errors.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub(super) fn code(&self) -> Code {
        self.code
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The status of the error as an HTTP response outside of the Connect protocol.
    pub(super) fn status(&self) -> StatusCode {
        let other = self.status.and_then(|status| StatusCode::from_u16(status).ok());
        other.unwrap_or_else(|| self.code.status())
    }
}

impl From<ApiError> for RpcError {
    fn from(failure: ApiError) -> Self {
        let message = message(&failure);
        let is_gone = failure.code == "sandbox_destroyed";
        Self { is_gone, ..Self::new(Code::of(&failure), message) }
    }
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        ApiError::from(error).into()
    }
}

impl From<AgentError> for RpcError {
    fn from(error: AgentError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<BadInput> for RpcError {
    fn from(error: BadInput) -> Self {
        ApiError::from(error).into()
    }
}

impl From<RpcError> for ApiError {
    fn from(failure: RpcError) -> Self {
        Self::new(failure.status(), "e2b", failure.message, "")
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        (self.status(), Json(self)).into_response()
    }
}

/// The time that the client gives a call; `None` for no limit.
///
/// # Errors
/// When the header is malformed.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, RpcError> {
    /// The protocol allows ten digits.
    const DIGITS_MAX: usize = 10;
    let Some(value) = headers.get("connect-timeout-ms") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let digits = (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let ms = text.parse().ok().filter(|_| digits);
    let ms = ms.ok_or_else(|| RpcError::invalid("Connect-Timeout-Ms: at most ten digits"))?;
    Ok(Some(Duration::from_millis(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_of_the_protocol() {
        let text = |error: &RpcError| serde_json::to_string(error).unwrap();
        let error = RpcError::new(Code::NotFound, "no");
        assert_eq!(text(&error), r#"{"code":"not_found","message":"no"}"#);
        assert_eq!(error.status(), StatusCode::NOT_FOUND);
        assert_eq!(RpcError::unsupported("x").status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let native = ApiError::new(StatusCode::CONFLICT, "exists", "a", "b");
        assert_eq!(RpcError::from(native).code(), Code::AlreadyExists);
        let code = |status: u16, code| {
            let status = StatusCode::from_u16(status).unwrap();
            RpcError::from(ApiError::new(status, code, "a", "b")).code()
        };
        assert_eq!(code(409, "sandbox_failed"), Code::Unavailable);
        assert_eq!(code(413, "too_large"), Code::InvalidArgument);
        assert_eq!(code(429, "too_many"), Code::ResourceExhausted);
        assert_eq!(code(507, "no_space"), Code::Internal);
    }

    #[test]
    fn a_timeout_is_a_number_of_milliseconds() {
        let of = |text: &str| {
            timeout(&HeaderMap::from_iter([(
                "connect-timeout-ms".parse().unwrap(),
                text.parse().unwrap(),
            )]))
        };
        assert_eq!(of("60000").unwrap(), Some(Duration::from_secs(60)));
        assert_eq!(timeout(&HeaderMap::new()).unwrap(), None);
        for bad in ["", "-1", "1.5", "x", "12345678901"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
