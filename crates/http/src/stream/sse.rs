//! Server-sent events: the answer that carries them, and events that every stream has.

use crate::foundation::error::ApiError;
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::stream::Stream;
use isolet_wire::tell::STDOUT;
use std::{convert::Infallible, time::Duration};

/// How often a silent stream is known to be alive.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// An answer that goes on as events, piece after piece, as the client takes them.
pub(crate) fn response(
    events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Body::from_stream(events).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A stream's event.
pub(crate) fn stream_name(stream: u8) -> &'static str {
    if stream == STDOUT { "stdout" } else { "stderr" }
}

/// Appends the last event of a stream that cannot go on.
pub(crate) fn write_error(out: &mut Vec<u8>, failure: &ApiError) {
    let text = serde_json::to_string(failure).unwrap_or_default();
    out.extend_from_slice(format!("event: error\ndata: {text}\n\n").as_bytes());
}
