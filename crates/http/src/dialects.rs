//! Other systems' words for the same things: translations without a logic of their own.

pub(crate) mod cloudflare;
pub(crate) mod isorun;
pub(crate) mod pokee;

use crate::foundation::error::ApiError;
use axum::response::{IntoResponse, Response};
use cloudflare::error::BridgeError;

/// A refusal, in the words of the dialect that was asked.
pub(crate) fn error_response(failure: ApiError, path: &str) -> Response {
    if cloudflare::owns(path) {
        return BridgeError::from(failure).into_response();
    }
    failure.into_response()
}
