//! E2B's error response: a status as a number, and a message.

use crate::foundation::error::ApiError;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Says whether the SDKs may send a request again. Without it they repeat every request of the control
/// plane that is answered with 429, 502, 503 or 504, up to three times.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");
/// Errors with the status 502 or 503 that another attempt does not mend.
const PERMANENT: [&str; 4] =
    ["server_full", "store_broken", "cannot_make_sandboxes", "registry_failed"];

/// An error in E2B's format.
#[derive(Debug)]
pub(crate) struct E2bError(ApiError);

#[derive(Serialize)]
struct ErrorView<'a> {
    code: u16,
    message: &'a str,
}

impl E2bError {
    /// Replaces the error that this reports.
    pub(super) fn map(self, change: impl FnOnce(ApiError) -> ApiError) -> Self {
        Self(change(self.0))
    }
}

impl<T: Into<ApiError>> From<T> for E2bError {
    fn from(failure: T) -> Self {
        Self(failure.into())
    }
}

/// The message of an error for a client of E2B's: with the hint, unless that names routes of the native
/// API, which such a client does not call.
pub(super) fn message(failure: &ApiError) -> String {
    let hint = failure.hint.as_str();
    if hint.is_empty() || hint.contains("/v1/") {
        return failure.message.clone();
    }
    format!("{}: {hint}", failure.message)
}

/// Whether an error tells the SDKs not to send the request again. A request that took too long continues
/// in the background, and another attempt would take as long.
fn is_permanent(failure: &ApiError) -> bool {
    match failure.status() {
        StatusCode::GATEWAY_TIMEOUT => true,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => {
            PERMANENT.contains(&failure.code)
        }
        _ => false,
    }
}

impl IntoResponse for E2bError {
    fn into_response(self) -> Response {
        let code = self.0.status().as_u16();
        let message = message(&self.0);
        let is_permanent = is_permanent(&self.0);
        // Status and headers are those of the native error.
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        if is_permanent {
            parts.headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        let body = axum::Json(ErrorView { code, message: &message });
        (parts.status, parts.headers, body).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdks_do_not_repeat_what_another_attempt_does_not_mend() {
        let of = |status: StatusCode, code| {
            let response = E2bError::from(ApiError::new(status, code, "no", "")).into_response();
            response.headers().get(SHOULD_RETRY).cloned()
        };
        let never = Some(HeaderValue::from_static("false"));
        assert_eq!(of(StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded"), never);
        assert_eq!(of(StatusCode::SERVICE_UNAVAILABLE, "server_full"), never);
        assert_eq!(of(StatusCode::BAD_GATEWAY, "registry_failed"), never);
        assert_eq!(of(StatusCode::SERVICE_UNAVAILABLE, "stopping"), None);
        assert_eq!(of(StatusCode::TOO_MANY_REQUESTS, "too_many_sandboxes"), None);
    }

    #[test]
    fn a_hint_names_no_route_of_another_api() {
        let of =
            |hint: &str| message(&ApiError::new(StatusCode::NOT_FOUND, "no", "it is gone", hint));
        assert_eq!(of(""), "it is gone");
        assert_eq!(of("create another"), "it is gone: create another");
        assert_eq!(of("list them with GET /v1/sandboxes"), "it is gone");
    }
}
