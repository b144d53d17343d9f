//! The body of a guest's answer, as it comes: what the client does not take is not read.

use crate::{
    app::App,
    auth::cancellation::{Cancellation, CancellationReason},
    connection::upstream::{Upstream, UpstreamPool},
};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use isolet_sandbox::Sandbox;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

type Ended = Pin<Box<dyn Future<Output = CancellationReason> + Send>>;

/// One answer.
pub(super) struct ProxiedBody {
    incoming: Incoming,
    /// Until it is given back.
    upstream: Option<Upstream>,
    idle: Arc<UpstreamPool>,
    /// Held: its sandbox stays awake.
    sandbox: Sandbox,
    port: u16,
    /// What ends it before its time; asked only when it has to be waited for.
    cancellation: Ended,
}

/// Why it ends before its time: its client sees a cut connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyAborted {
    /// The right to it has ended, or the server stops.
    #[error("cut: {0:?}")]
    Ended(CancellationReason),
    /// The guest's fault.
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
        // One that was not read to its end closes with its connection.
        if let Some(upstream) = self.upstream.take().filter(|_| self.incoming.is_end_stream()) {
            self.idle.release(&self.sandbox, self.port, upstream);
        }
    }
}
