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

impl IntoResponse for E2bError {
    fn into_response(self) -> Response {
        let code = self.0.status().as_u16();
        let message = match self.0.hint.as_str() {
            "" => self.0.message.clone(),
            hint => format!("{}: {hint}", self.0.message),
        };
        // Status and headers are those of the native error.
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        let body = axum::Json(ErrorView { code, message: &message });
        (parts.status, parts.headers, body).into_response()
    }
}
