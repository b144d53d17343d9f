//! The body of a request of another node, which is read on for a moment when nobody reads it.
//!
//! A node that answers before it has read a long body would close the connection with unread data.
//! The kernel then resets it, and the other node may lose the answer.

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// How long the rest is discarded. The other node closes the connection once it has the answer.
const LINGER: Duration = Duration::from_secs(2);

/// A body whose rest is discarded after it is dropped.
pub(super) struct LingeringBody(Body);

impl LingeringBody {
    pub(super) fn wrap(body: Body) -> Body {
        if hyper::body::Body::is_end_stream(&body) { body } else { Body::new(Self(body)) }
    }
}

impl hyper::body::Body for LingeringBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl Drop for LingeringBody {
    fn drop(&mut self) {
        if hyper::body::Body::is_end_stream(&self.0) {
            return;
        }
        let mut rest = std::mem::take(&mut self.0);
        // Without a runtime the server is gone too.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime
            .spawn(timeout(LINGER, async move { while let Some(Ok(_)) = rest.frame().await {} }));
    }
}
