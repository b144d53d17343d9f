//! Other systems' words for the same things: translations without a logic of their own.

pub(crate) mod cloudflare;
pub(crate) mod isorun;
pub(crate) mod pokee;

use crate::foundation::error::Failure;
use axum::response::{IntoResponse, Response};
use cloudflare::error::Refusal;

/// A refusal, in the words of the dialect that was asked.
pub(crate) fn refused(failure: Failure, path: &str) -> Response {
    if cloudflare::owns(path) {
        return Refusal::from(failure).into_response();
    }
    failure.into_response()
}
