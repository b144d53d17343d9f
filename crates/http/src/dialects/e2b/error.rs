//! E2B's error response: a status as a number, and a message.

use crate::foundation::error::ApiError;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An error in E2B's format.
#[derive(Debug)]
pub(crate) struct E2bError(ApiError);

#[derive(Serialize)]
struct ErrorView<'a> {
    code: u16,
    message: &'a str,
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

impl IntoResponse for E2bError {
    fn into_response(self) -> Response {
        let code = self.0.status().as_u16();
        let message = message(&self.0);
        // Status and headers are those of the native error.
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        let body = axum::Json(ErrorView { code, message: &message });
        (parts.status, parts.headers, body).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[test]
    fn a_hint_names_no_route_of_another_api() {
        let of =
            |hint: &str| message(&ApiError::new(StatusCode::NOT_FOUND, "no", "it is gone", hint));
        assert_eq!(of(""), "it is gone");
        assert_eq!(of("create another"), "it is gone: create another");
        assert_eq!(of("list them with GET /v1/sandboxes"), "it is gone");
    }
}
