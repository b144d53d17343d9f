//! Server-sent events: the response that carries them, and what all event streams share.

use crate::foundation::error::ApiError;
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::stream::Stream;
use isolet_wire::response::STDOUT;
use std::{convert::Infallible, time::Duration};

/// How often a stream without events sends a comment, so that the client knows that it is alive.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A response that streams events as the client reads them.
pub(crate) fn response(
    events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Body::from_stream(events).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The name of an output stream's event.
pub(crate) fn stream_name(stream: u8) -> &'static str {
    if stream == STDOUT { "stdout" } else { "stderr" }
}

/// Appends the last event of a stream that ends with an error.
pub(crate) fn write_error(out: &mut Vec<u8>, failure: &ApiError) {
    let text = serde_json::to_string(failure).unwrap_or_default();
    out.extend_from_slice(format!("event: error\ndata: {text}\n\n").as_bytes());
}
