//! Requests that create something: their idempotency key, and the response with its location.

use crate::foundation::error::ApiError;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::IdempotencyKey;
use isolet_sandbox::info::KEY_BYTES_MAX;

/// Parses `Idempotency-Key`, which is bound to the route and the body.
pub(crate) fn idempotency_key(
    headers: &HeaderMap,
    route: &str,
    body: &[u8],
) -> Result<Option<IdempotencyKey>, ApiError> {
    let mut all = headers.get_all("idempotency-key").iter();
    let Some(key) = all.next() else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX);
    let key = key.filter(|_| all.next().is_none()).ok_or_else(|| {
        ApiError::bad_field(
            "Idempotency-Key",
            "must be one header of 1 to 255 visible ASCII characters",
        )
    })?;
    Ok(Some(IdempotencyKey::new(key, route, body)))
}

/// 201 with `Location`; `Idempotency-Replayed` when an earlier request created it.
pub(crate) fn created(location: &str, replayed: bool, body: impl IntoResponse) -> Response {
    let mut response = done(replayed, (StatusCode::CREATED, body));
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// The answer to a request with an idempotency key; `Idempotency-Replayed` when an earlier request
/// with the key did it.
pub(crate) fn done(replayed: bool, answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    if replayed {
        let name = HeaderName::from_static("idempotency-replayed");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    response
}
