//! The body of a program's response, streamed: the server reads from the program only as fast as
//! the client reads.

use crate::app::App;
use crate::auth::cancellation::{Cancellation, CancellationReason};
use crate::connection::upstream::{Upstream, UpstreamPool};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use isolet_sandbox::Sandbox;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

type CancelledFuture = Pin<Box<dyn Future<Output = CancellationReason> + Send>>;

pub(super) struct ProxiedBody {
    incoming: Incoming,
    /// Returned to the pool when the body has been read to its end.
    upstream: Option<Upstream>,
    idle: Arc<UpstreamPool>,
    /// Keeps the sandbox awake.
    sandbox: Sandbox,
    port: u16,
    /// Ends the body early; polled only while the body has no data.
    cancellation: CancelledFuture,
}

/// Why a body ends early. Its client sees a truncated response.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyAborted {
    /// The right to it expired, or the server stops.
    #[error("cut: {0:?}")]
    Ended(CancellationReason),
    /// The program caused it.
    #[error(transparent)]
    Guest(#[from] hyper::Error),
}

impl ProxiedBody {
    pub(super) fn new(
        incoming: Incoming,
        upstream: Upstream,
        sandbox: Sandbox,
        port: u16,
        app: &App,
        mut cancellation: Cancellation,
    ) -> Self {
        let cancellation = Box::pin(async move { cancellation.cancelled().await });
        let idle = Arc::clone(&app.upstreams);
        Self { incoming, upstream: Some(upstream), idle, sandbox, port, cancellation }
    }
}

impl Body for ProxiedBody {
    type Data = Bytes;
    type Error = BodyAborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyAborted>>> {
        if let Poll::Ready(reason) = self.cancellation.as_mut().poll(cx) {
            return Poll::Ready(Some(Err(BodyAborted::Ended(reason))));
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyAborted::from)));
        }
        if let Some(upstream) = &mut self.upstream {
            upstream.drive(cx);
        }
        Pin::new(&mut self.incoming)
            .poll_frame(cx)
            .map(|frame| frame.map(|frame| frame.map_err(BodyAborted::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ProxiedBody {
    fn drop(&mut self) {
        // A body that was not read to its end closes its connection.
        if let Some(upstream) = self.upstream.take().filter(|_| self.incoming.is_end_stream()) {
            self.idle.release(&self.sandbox, self.port, upstream);
        }
    }
}
