//! A response body that holds the permit of its request.

use crate::limits::body_memory::BodyMemory;
use crate::limits::limiter::Permit;
use crate::limits::memory_budget::MemoryShare;
use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The chunk size of a response that was built whole.
const PIECE_BYTES: usize = 256 * 1024;

/// Holds the permit until the last byte was sent or the client has disconnected.
pub(crate) fn hold_permit(response: Response, permit: Permit) -> Response {
    with_permit(response, permit, None)
}

pub(crate) fn with_permit(
    response: Response,
    permit: Permit,
    share: Option<MemoryShare>,
) -> Response {
    let rest = Bytes::new();
    let permit = Some(permit);
    response.map(|body| Body::new(PermitBody { body, rest, permit, share, _request: None }))
}

/// As [`hold_permit`], for a request whose body is still read while its response is sent.
pub(crate) fn hold_permit_and_body(
    response: Response,
    permit: Permit,
    request: BodyMemory,
) -> Response {
    let rest = Bytes::new();
    let permit = Some(permit);
    let request = Some(request);
    response
        .map(|body| Body::new(PermitBody { body, rest, permit, share: None, _request: request }))
}

struct PermitBody {
    body: Body,
    /// For a response that was built whole: the part that was not handed to hyper yet. hyper would
    /// buffer the whole body at once, outside of every limit.
    rest: Bytes,
    permit: Option<Permit>,
    /// The share of the memory for responses, if this response is held in full.
    share: Option<MemoryShare>,
    /// The memory of the request's body, if it is needed until the end of the response.
    _request: Option<BodyMemory>,
}

impl PermitBody {
    fn piece(&mut self) -> Frame<Bytes> {
        let count = self.rest.len().min(PIECE_BYTES);
        Frame::data(self.rest.split_to(count))
    }
}

impl hyper::body::Body for PermitBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            end => {
                self.permit = None;
                self.share = None;
                return Poll::Ready(end);
            }
        };
        if self.share.is_none() {
            return Poll::Ready(Some(Ok(frame)));
        }
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(data) => {
                self.rest = data;
                self.piece()
            }
            Err(frame) => frame,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(most) = inner.upper() {
            hint.set_upper(most + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}
