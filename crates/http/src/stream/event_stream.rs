//! Server-sent events: their framing, and the stream that carries them on every route.
//!
//! A stream waits for its source, writes all events that are available as one chunk of the body,
//! and is asked for the next chunk only when the client has read the one before. While nothing
//! happens it sends a comment, so that both sides notice a broken connection. It ends after the
//! last event of its source, or with an event `error`: because the source failed, the server stops,
//! or the caller's key was revoked.

use crate::auth::cancellation::Cancellation;
use crate::foundation::error::ApiError;
use crate::foundation::json_text;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use isolet_wire::response::STDOUT;
use serde::Serialize;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How often a stream without events sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A chunk of the body is sent once it is larger than this, even if more events are available.
const CHUNK_BYTES: usize = 128 * 1024;

/// The source of a stream's events.
pub(crate) trait EventSource: Sized + Send + 'static {
    /// What the source waits for; it becomes any number of server-sent events.
    type Item: Send;

    /// Waits for the next item. Cancel-safe. Not called after the last item or an error.
    fn next(&mut self) -> impl Future<Output = Result<Self::Item, ApiError>> + Send;

    /// Returns the next item if it has already arrived.
    fn ready(&mut self) -> Result<Option<Self::Item>, ApiError> {
        Ok(None)
    }

    /// Appends the events of an item. Breaks after the last item.
    fn write(&mut self, item: Self::Item, out: &mut EventBuffer) -> ControlFlow<()>;

    /// Appends the last event of a stream that ends with an error.
    fn write_error(&self, failure: &ApiError, out: &mut EventBuffer) {
        out.event(None, "error", failure);
    }

    /// Called after the last item, but not when the stream ends early.
    fn finish(self) {}
}

/// Events that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct EventBuffer {
    bytes: Vec<u8>,
}

impl EventBuffer {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends a comment, which clients ignore.
    pub(crate) fn comment(&mut self, text: &str) {
        self.extend([": ", text, "\n\n"]);
    }

    /// Appends an event. A client that reconnects sends the last id that it has received.
    pub(crate) fn event(&mut self, id: Option<u64>, name: &str, data: &impl Serialize) {
        if let Some(id) = id {
            self.extend(["id: ", &id.to_string(), "\n"]);
        }
        self.extend(["event: ", name, "\ndata: "]);
        // JSON escapes line breaks, so that the data is one line.
        json_text::append(&mut self.bytes, data);
        self.extend(["\n\n"]);
    }

    /// Appends an event of another node. Both `cursor` and `data` must be a single line.
    pub(crate) fn relayed_event(&mut self, cursor: &str, name: &str, data: &str) {
        self.extend(["id: ", cursor, "\nevent: ", name, "\ndata: ", data, "\n\n"]);
    }

    /// Appends the position of a stream without an event.
    pub(crate) fn position(&mut self, cursor: &str) {
        self.extend(["id: ", cursor, "\n\n"]);
    }

    /// Appends an event whose data is not JSON. `line` must be a single line.
    pub(crate) fn line_event(&mut self, name: &str, line: &str) {
        self.extend(["event: ", name, "\ndata: ", line, "\n\n"]);
    }

    fn extend<const COUNT: usize>(&mut self, parts: [&str; COUNT]) {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
    }

    pub(crate) fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).into()
    }

    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }
}

/// The body of a response with server-sent events.
pub(crate) struct EventStream<S> {
    /// `None` after the end.
    source: Option<S>,
    cancellation: Cancellation,
    /// Sent before anything of the source.
    first: EventBuffer,
    keep_alive_at: Instant,
}

impl<S: EventSource> EventStream<S> {
    /// `first` is sent at once. `source`: `None` when `first` already contains the last event.
    pub(crate) fn new(source: Option<S>, first: EventBuffer, cancellation: Cancellation) -> Self {
        Self { source, cancellation, first, keep_alive_at: Instant::now() + KEEP_ALIVE }
    }

    /// The response, which produces events as the client reads them.
    pub(crate) fn into_response(self) -> Response {
        let chunks = stream::unfold(self, |mut events| async move {
            let chunk = events.next_chunk().await?;
            Some((Ok::<_, Infallible>(chunk), events))
        });
        let mut response = Body::from_stream(chunks).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// The next chunk, which is never empty; `None` after the last.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if !self.first.is_empty() {
            return Some(self.first.take());
        }
        let mut source = self.source.take()?;
        let mut out = EventBuffer::default();
        while out.is_empty() {
            // Cancellation first: a source that never stops producing must not delay it.
            let next = tokio::select! {
                biased;
                reason = self.cancellation.cancelled() => Err(reason.into()),
                next = timeout_at(self.keep_alive_at, source.next()) => match next {
                    Ok(next) => next,
                    Err(_) => {
                        out.comment("alive");
                        break;
                    }
                },
            };
            match write_available(&mut source, next, &mut out) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => {
                    source.finish();
                    return (!out.is_empty()).then(|| out.take());
                }
                Err(failure) => {
                    source.write_error(&failure, &mut out);
                    return Some(out.take());
                }
            }
        }
        self.keep_alive_at = Instant::now() + KEEP_ALIVE;
        self.source = Some(source);
        Some(out.take())
    }
}

/// Appends the events of an item and of those that have already arrived, up to the size of a chunk.
fn write_available<S: EventSource>(
    source: &mut S,
    first: Result<S::Item, ApiError>,
    out: &mut EventBuffer,
) -> Result<ControlFlow<()>, ApiError> {
    let mut item = first?;
    loop {
        if source.write(item, out).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if out.bytes.len() > CHUNK_BYTES {
            return Ok(ControlFlow::Continue(()));
        }
        match source.ready()? {
            Some(next) => item = next,
            None => return Ok(ControlFlow::Continue(())),
        }
    }
}

/// The id of the last event that a reconnecting client has received. `Some(None)`: the header is
/// not a number.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Option<Option<u64>> {
    let id = headers.get("last-event-id")?;
    Some(id.to_str().ok().and_then(|id| id.parse().ok()))
}

/// The name of an output stream and of its events.
pub(crate) fn stream_name(stream: u8) -> &'static str {
    if stream == STDOUT { "stdout" } else { "stderr" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::collections::VecDeque;

    /// Produces its items, then waits forever.
    struct Numbers {
        items: VecDeque<Result<u32, ApiError>>,
    }

    impl EventSource for Numbers {
        type Item = u32;

        async fn next(&mut self) -> Result<u32, ApiError> {
            match self.items.pop_front() {
                Some(item) => item,
                None => std::future::pending().await,
            }
        }

        /// Odd numbers have no event; 0 is the last.
        fn write(&mut self, item: u32, out: &mut EventBuffer) -> ControlFlow<()> {
            match item {
                0 => ControlFlow::Break(()),
                item if item % 2 == 1 => ControlFlow::Continue(()),
                item => {
                    out.event(Some(item.into()), "even", &item);
                    ControlFlow::Continue(())
                }
            }
        }
    }

    async fn sent(items: impl IntoIterator<Item = Result<u32, ApiError>>, stop: bool) -> String {
        let (sender, stopping) = tokio::sync::watch::channel(stop);
        let mut first = EventBuffer::default();
        first.comment("begun");
        let source = Numbers { items: items.into_iter().collect() };
        let stream = EventStream::new(Some(source), first, Cancellation::of_stop(stopping));
        let body = stream.into_response().into_body().collect().await.unwrap();
        drop(sender);
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_stream_ends_after_its_last_item_or_an_error() {
        let all = ": begun\n\nid: 2\nevent: even\ndata: 2\n\n";
        assert_eq!(sent([Ok(1), Ok(2), Ok(3), Ok(0)], false).await, all);
        let failed = sent([Ok(2), Err(ApiError::bad_request("no"))], false).await;
        let error = r#"{"error":"bad_request","message":"no","hint":"see /v1/openapi.json for the fields of this call"}"#;
        assert_eq!(failed, format!("{all}event: error\ndata: {error}\n\n"));
        let stopped = sent([], true).await;
        assert!(stopped.starts_with(": begun\n\nevent: error\ndata: {\"error\":"), "{stopped}");
    }

    #[tokio::test]
    async fn a_silent_stream_sends_comments() {
        let (_sender, stopping) = tokio::sync::watch::channel(false);
        let source = Numbers { items: VecDeque::from([Ok(1)]) };
        let first = EventBuffer::default();
        let mut stream = EventStream::new(Some(source), first, Cancellation::of_stop(stopping));
        for _ in 0..2 {
            stream.keep_alive_at = Instant::now();
            assert_eq!(stream.next_chunk().await.unwrap(), ": alive\n\n");
            assert!(stream.keep_alive_at > Instant::now());
        }
    }
}
