//! Unary calls: one JSON message in each direction.

use crate::dialects::e2b::connect::envelope::parse;
use crate::dialects::e2b::connect::{MESSAGE_BYTES_MAX, RpcError};
use crate::foundation::json::read_body;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use serde::de::DeserializeOwned;

/// The message of a unary call. Unknown fields are ignored, because newer clients send more.
pub(in crate::dialects::e2b) struct Unary<T>(pub(in crate::dialects::e2b) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Unary<T> {
    type Rejection = RpcError;

    async fn from_request(request: Request, _: &S) -> Result<Self, RpcError> {
        let (parts, body) = request.into_parts();
        let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let message = "the server reads application/json in unary calls, not protobuf";
            return Err(RpcError::unsupported(message));
        }
        let encoding = parts.headers.get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(RpcError::unsupported("the server reads no compressed messages"));
        }
        let body = read_body(body, parts.extensions.get()).await?;
        debug_assert!(body.len() <= MESSAGE_BYTES_MAX, "it has the same limit");
        Ok(Self(parse(&body)?))
    }
}
