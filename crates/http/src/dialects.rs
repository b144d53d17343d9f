//! The APIs of other systems, translated to this server's operations.

pub(crate) mod cloudflare;
pub(crate) mod e2b;
pub(crate) mod isorun;
pub(crate) mod pokee;
pub(crate) mod swerex;

use crate::foundation::error::ApiError;
use axum::response::{IntoResponse, Response};
use cloudflare::error::BridgeError;
use e2b::error::E2bError;
use swerex::error::SwerexError;

/// An error response in the format of the API that the path belongs to.
pub(crate) fn error_response(failure: ApiError, path: &str) -> Response {
    if cloudflare::owns(path) {
        return BridgeError::from(failure).into_response();
    }
    if e2b::routes::owns(path) {
        return E2bError::from(failure).into_response();
    }
    if swerex::routes::owns(path) {
        return SwerexError::from(failure).into_response();
    }
    failure.into_response()
}
