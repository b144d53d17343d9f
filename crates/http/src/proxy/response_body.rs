//! The body of a guest's answer, as it comes: what the client does not take is not read.

use crate::{
    app::App,
    auth::cancellation::{Ending, Until},
    connection::upstream::{Upstream, Upstreams},
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

type Ended = Pin<Box<dyn Future<Output = Ending> + Send>>;

/// One answer.
pub(super) struct Answer {
    incoming: Incoming,
    /// Until it is given back.
    upstream: Option<Upstream>,
    idle: Arc<Upstreams>,
    /// Held: its sandbox stays awake.
    sandbox: Sandbox,
    port: u16,
    /// What ends it before its time; asked only when it has to be waited for.
    until: Ended,
}

/// Why it ends before its time: its client sees a cut connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    /// The right to it has ended, or the server stops.
    #[error("cut: {0:?}")]
    Ended(Ending),
    /// The guest's fault.
    #[error(transparent)]
    Guest(#[from] hyper::Error),
}

impl Answer {
    pub(super) fn new(
        incoming: Incoming,
        upstream: Upstream,
        (sandbox, port): (Sandbox, u16),
        app: &App,
        mut until: Until,
    ) -> Self {
        let until = Box::pin(async move { until.ended().await });
        let idle = Arc::clone(&app.upstreams);
        Self { incoming, upstream: Some(upstream), idle, sandbox, port, until }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Poll::Ready(ending) = self.until.as_mut().poll(cx) {
            return Poll::Ready(Some(Err(Cut::Ended(ending))));
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Cut::from)));
        }
        if let Some(upstream) = &mut self.upstream {
            upstream.drive(cx);
        }
        Pin::new(&mut self.incoming)
            .poll_frame(cx)
            .map(|frame| frame.map(|frame| frame.map_err(Cut::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // One that was not read to its end closes with its connection.
        if let Some(upstream) = self.upstream.take().filter(|_| self.incoming.is_end_stream()) {
            self.idle.put(&self.sandbox, self.port, upstream);
        }
    }
}
