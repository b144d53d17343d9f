//! The response of a stream of messages.
//!
//! It waits for its source, writes all messages that are available as one chunk of the body, and is
//! asked for the next chunk only when the client has read the one before. While nothing happens it
//! sends messages that clients ignore, so that both sides notice a broken connection.

use crate::auth::cancellation::Cancellation;
use crate::dialects::e2b::connect::envelope::Envelopes;
use crate::dialects::e2b::connect::{Code, RpcError};
use crate::foundation::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// How often a silent stream sends a message, unless the client asks for it more often.
const KEEP_ALIVE: Duration = Duration::from_secs(50);
/// The most often that a client can ask for it.
const KEEP_ALIVE_MIN: Duration = Duration::from_secs(1);
/// A chunk of the body is sent once it is larger than this, even if more messages are available.
const CHUNK_BYTES: usize = 128 * 1024;

/// The source of a stream's messages.
pub(in crate::dialects::e2b) trait MessageSource:
    Sized + Send + 'static
{
    /// What the source waits for; it becomes any number of messages.
    type Item: Send;

    /// Waits for the next item. Cancel-safe. Not called after the last item or an error.
    fn next(&mut self) -> impl Future<Output = Result<Self::Item, RpcError>> + Send;

    /// Returns the next item if it has already arrived.
    fn ready(&mut self) -> Result<Option<Self::Item>, RpcError> {
        Ok(None)
    }

    /// Appends the messages of an item. Breaks after the last item, with the error of the stream.
    fn write(&mut self, item: Self::Item, out: &mut Envelopes)
    -> ControlFlow<Result<(), RpcError>>;

    /// Appends a message that clients ignore.
    fn keep_alive(&self, out: &mut Envelopes);

    /// Called after the last item, but not when the stream ends early.
    fn finish(self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// When a stream sends and ends, as its request says.
#[derive(Debug)]
pub(in crate::dialects::e2b) struct Pace {
    keep_alive: Duration,
    deadline: Option<Instant>,
}

impl Pace {
    pub(in crate::dialects::e2b) fn new(headers: &HeaderMap, timeout: Option<Duration>) -> Self {
        let wish = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok());
        let wish = wish.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        let keep_alive = wish.unwrap_or(KEEP_ALIVE).clamp(KEEP_ALIVE_MIN, KEEP_ALIVE);
        Self { keep_alive, deadline: timeout.map(|timeout| Instant::now() + timeout) }
    }
}

struct MessageStream<S> {
    /// `None` after the end.
    source: Option<S>,
    cancellation: Cancellation,
    /// Sent before anything of the source.
    first: Envelopes,
    pace: Pace,
    keep_alive_at: Instant,
}

/// The response of a call that streams: its messages, or the error with which it could not begin.
pub(in crate::dialects::e2b) fn respond<S: MessageSource>(
    begun: Result<(S, Envelopes, Pace), RpcError>,
    cancellation: Cancellation,
) -> Response {
    let body = match begun {
        Err(failure) => {
            let mut only = Envelopes::default();
            only.end(Some(&failure));
            Body::from(only.take())
        }
        Ok((source, first, pace)) => {
            let keep_alive_at = Instant::now() + pace.keep_alive;
            let source = Some(source);
            let stream = MessageStream { source, cancellation, first, pace, keep_alive_at };
            Body::from_stream(stream::unfold(stream, |mut messages| async move {
                let chunk = messages.next_chunk().await?;
                Some((chunk, messages))
            }))
        }
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/connect+json");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl<S: MessageSource> MessageStream<S> {
    /// The next chunk, which is never empty; `None` after the last. An error breaks the connection.
    async fn next_chunk(&mut self) -> Option<io::Result<Bytes>> {
        if self.first.len() > 0 {
            return Some(Ok(self.first.take()));
        }
        let mut source = self.source.take()?;
        let mut out = Envelopes::default();
        while out.len() == 0 {
            let deadline = self.pace.deadline;
            let over = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            // Ends first: a source that never stops producing must not delay them.
            let next = tokio::select! {
                biased;
                reason = self.cancellation.cancelled() => Err(ApiError::from(reason).into()),
                () = over => {
                    Err(RpcError::new(Code::DeadlineExceeded, "the timeout of the call has passed"))
                }
                next = timeout_at(self.keep_alive_at, source.next()) => match next {
                    Ok(next) => next,
                    Err(_) => {
                        source.keep_alive(&mut out);
                        break;
                    }
                },
            };
            match write_available(&mut source, next, &mut out) {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(end) => {
                    source.finish().await;
                    let failure = end.err();
                    if failure.as_ref().is_some_and(RpcError::is_gone) {
                        return Some(Err(io::Error::other("the sandbox has ended")));
                    }
                    out.end(failure.as_ref());
                    return Some(Ok(out.take()));
                }
            }
        }
        self.keep_alive_at = Instant::now() + self.pace.keep_alive;
        self.source = Some(source);
        Some(Ok(out.take()))
    }
}

/// Appends the messages of an item and of those that have already arrived, up to the size of a
/// chunk.
fn write_available<S: MessageSource>(
    source: &mut S,
    first: Result<S::Item, RpcError>,
    out: &mut Envelopes,
) -> ControlFlow<Result<(), RpcError>> {
    let mut next = first.map(Some);
    loop {
        match next {
            Err(failure) => return ControlFlow::Break(Err(failure)),
            Ok(None) => return ControlFlow::Continue(()),
            Ok(Some(item)) => source.write(item, out)?,
        }
        if out.len() > CHUNK_BYTES {
            return ControlFlow::Continue(());
        }
        next = source.ready();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::collections::VecDeque;

    struct Numbers(VecDeque<Result<u32, RpcError>>);

    impl MessageSource for Numbers {
        type Item = u32;

        async fn next(&mut self) -> Result<u32, RpcError> {
            match self.0.pop_front() {
                Some(item) => item,
                None => std::future::pending().await,
            }
        }

        fn write(&mut self, item: u32, out: &mut Envelopes) -> ControlFlow<Result<(), RpcError>> {
            if item == 0 {
                return ControlFlow::Break(Ok(()));
            }
            out.message(&item);
            ControlFlow::Continue(())
        }

        fn keep_alive(&self, out: &mut Envelopes) {
            out.message(&"alive");
        }
    }

    async fn sent(items: impl IntoIterator<Item = Result<u32, RpcError>>, pace: Pace) -> Vec<u8> {
        let (_sender, stopping) = tokio::sync::watch::channel(false);
        let source = Numbers(items.into_iter().collect());
        let begun = Ok((source, Envelopes::default(), pace));
        let response = respond(begun, Cancellation::of_stop(stopping));
        response.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    fn pace(timeout: Option<Duration>) -> Pace {
        Pace::new(&HeaderMap::new(), timeout)
    }

    #[tokio::test]
    async fn a_stream_ends_with_an_envelope_that_says_so() {
        assert_eq!(sent([Ok(7), Ok(0)], pace(None)).await, b"\0\0\0\0\x017\x02\0\0\0\x02{}");
        let failed = sent([Ok(7), Err(RpcError::invalid("no"))], pace(None)).await;
        let text = String::from_utf8_lossy(&failed);
        assert!(
            text.ends_with(r#"{"error":{"code":"invalid_argument","message":"no"}}"#),
            "{text}"
        );
        let late = sent([], pace(Some(Duration::ZERO))).await;
        assert!(String::from_utf8_lossy(&late).contains("deadline_exceeded"));
    }

    #[tokio::test]
    async fn a_silent_stream_sends_messages_that_clients_ignore() {
        let (_sender, stopping) = tokio::sync::watch::channel(false);
        let mut headers = HeaderMap::new();
        headers.insert("keepalive-ping-interval", "2".parse().unwrap());
        let mut silent = MessageStream {
            source: Some(Numbers(VecDeque::new())),
            cancellation: Cancellation::of_stop(stopping),
            first: Envelopes::default(),
            pace: Pace::new(&headers, None),
            keep_alive_at: Instant::now(),
        };
        assert_eq!(silent.pace.keep_alive, Duration::from_secs(2));
        for _ in 0..2 {
            silent.keep_alive_at = Instant::now();
            assert_eq!(&silent.next_chunk().await.unwrap().unwrap()[5..], b"\"alive\"");
            assert!(silent.keep_alive_at > Instant::now());
        }
    }
}
