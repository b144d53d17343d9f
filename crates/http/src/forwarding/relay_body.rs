//! The body of another node's response, streamed: this node reads only as fast as its client.

use crate::auth::cancellation::{Cancellation, CancellationReason};
use crate::foundation::error::ApiError;
use crate::stream::event_stream::EventBuffer;
use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

type CancelledFuture = Pin<Box<dyn Future<Output = CancellationReason> + Send>>;

/// A body that ends early when its caller loses access.
pub(super) struct RelayBody {
    /// `None` after an early end.
    incoming: Option<Body>,
    cancelled: CancelledFuture,
    /// The error of a node that stops in the middle of a response.
    lost: ApiError,
    /// For server-sent events: the last two bytes.
    tail: Option<[u8; 2]>,
}

/// Why a body ends early. Its client sees a truncated response.
#[derive(Debug, thiserror::Error)]
#[error("cut: {0:?}")]
struct Cut(CancellationReason);

impl RelayBody {
    /// `events`: the body consists of server-sent events, which end with an event `error`. `lost` is
    /// that error when the other node stops in the middle.
    pub(super) fn new(
        incoming: Body,
        mut cancellation: Cancellation,
        events: bool,
        lost: ApiError,
    ) -> Self {
        let cancelled = Box::pin(async move { cancellation.cancelled().await });
        // Before the first byte is the end of an event.
        let tail = events.then_some(*b"\n\n");
        Self { incoming: Some(incoming), cancelled, lost, tail }
    }

    /// Ends the body early: with an event if it is between two events, otherwise with an error.
    fn end(&mut self, failure: &ApiError, error: axum::Error) -> Result<Frame<Bytes>, axum::Error> {
        self.incoming = None;
        if self.tail != Some(*b"\n\n") {
            return Err(error);
        }
        let mut last = EventBuffer::default();
        last.event(None, "error", failure);
        Ok(Frame::data(last.take()))
    }

    fn note(&mut self, data: &[u8]) {
        let Some(tail) = &mut self.tail else { return };
        for byte in &data[data.len().saturating_sub(2)..] {
            *tail = [tail[1], *byte];
        }
    }
}

impl hyper::body::Body for RelayBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let Some(incoming) = &mut this.incoming else { return Poll::Ready(None) };
        if let Poll::Ready(reason) = this.cancelled.as_mut().poll(cx) {
            let error = axum::Error::new(Cut(reason));
            return Poll::Ready(Some(this.end(&reason.into(), error)));
        }
        match ready!(Pin::new(incoming).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.note(data);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                let lost = this.lost.clone();
                Poll::Ready(Some(this.end(&lost, error)))
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(hyper::body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.incoming {
            // An event may be added to events.
            Some(incoming) if self.tail.is_none() => incoming.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::BodyExt;
    use std::io;
    use tokio::sync::watch;

    fn relayed(parts: Vec<io::Result<&'static str>>, events: bool, stop: bool) -> RelayBody {
        let (sender, stopping) = watch::channel(stop);
        // The server lives longer than the test.
        std::mem::forget(sender);
        let body = Body::from_stream(stream::iter(parts));
        let lost = ApiError::bad_request("lost");
        RelayBody::new(body, Cancellation::of_stop(stopping), events, lost)
    }

    fn broken() -> io::Result<&'static str> {
        Err(io::ErrorKind::ConnectionReset.into())
    }

    async fn text(body: RelayBody) -> Option<String> {
        let all = Body::new(body).collect().await.ok()?.to_bytes();
        Some(String::from_utf8(all.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn events_end_with_an_error_between_two_events_and_nowhere_else() {
        let event = "event: a\ndata: 1\n\n";
        let ended = text(relayed(vec![Ok(event), broken()], true, false)).await.unwrap();
        assert!(ended.starts_with(&format!("{event}event: error\ndata: {{")), "{ended}");
        assert!(ended.contains("lost"), "{ended}");
        let split = vec![Ok("event: a\ndata: 1\n"), Ok("\n"), broken()];
        assert!(text(relayed(split, true, false)).await.is_some());
        assert_eq!(text(relayed(vec![Ok("event: a\n"), broken()], true, false)).await, None);
        assert_eq!(text(relayed(vec![Ok(event), broken()], false, false)).await, None);
    }

    #[tokio::test]
    async fn a_cancelled_body_ends() {
        assert_eq!(text(relayed(vec![Ok("a")], false, true)).await, None);
        let ended = text(relayed(vec![Ok("event: a\n\n")], true, true)).await.unwrap();
        assert!(ended.starts_with("event: error\n"), "{ended}");
        let whole = relayed(vec![Ok("a"), Ok("b")], false, false);
        assert_eq!(text(whole).await.as_deref(), Some("ab"));
    }
}
