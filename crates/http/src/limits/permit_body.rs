//! A response body that holds the permit of its request.

use crate::foundation::error::ApiError;
use crate::limits::body_memory::BodyMemory;
use crate::limits::limiter::Permit;
use crate::limits::memory_budget::MemoryShare;
use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
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
    response.map(|body| Body::new(PermitBody { body, rest, permit, share, memory: None }))
}

/// As [`hold_permit`], for a request whose body is still read while its response is sent, and whose
/// answers take their memory while the response is sent.
pub(crate) fn hold_permit_and_memory(
    response: Response,
    permit: Permit,
    request: BodyMemory,
    answers: AnswersOfResponse,
) -> Response {
    let rest = Bytes::new();
    let permit = Some(permit);
    response.map(|body| {
        let memory = Some((request, answers));
        Body::new(PermitBody { body, rest, permit, share: None, memory })
    })
}

/// The memory of the answers in a response that is a stream. It ends with this value: when the response
/// was sent, or its client has left.
pub(crate) struct AnswersOfResponse(Arc<Mutex<Option<MemoryShare>>>);

/// Takes memory of an [`AnswersOfResponse`].
#[derive(Clone)]
pub(crate) struct AnswersHandle(Arc<Mutex<Option<MemoryShare>>>);

impl AnswersOfResponse {
    pub(crate) fn new(share: MemoryShare) -> Self {
        Self(Arc::new(Mutex::new(Some(share))))
    }

    pub(crate) fn handle(&self) -> AnswersHandle {
        AnswersHandle(Arc::clone(&self.0))
    }
}

impl Drop for AnswersOfResponse {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl AnswersHandle {
    /// Runs a function with the share, or returns `None` if nobody waits for the response any more.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut MemoryShare) -> R) -> Option<R> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(run)
    }
}

struct PermitBody {
    body: Body,
    /// For a response that was built whole: the part that was not handed to hyper yet. hyper would
    /// buffer the whole body at once, outside of every limit.
    rest: Bytes,
    permit: Option<Permit>,
    /// The share of the memory for responses, if this response is held in full.
    share: Option<MemoryShare>,
    /// The memory of the request's body and of answers, if it is needed until the end of the response.
    memory: Option<(BodyMemory, AnswersOfResponse)>,
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
                self.memory = None;
                return Poll::Ready(end);
            }
        };
        if self.share.is_none() && self.memory.is_none() {
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

/// 429: the tenant's clients have not read what was answered before.
pub(crate) fn unread_answers(share: &MemoryShare, method: &Method, bytes: usize) -> ApiError {
    let done = match *method {
        Method::GET | Method::HEAD => "",
        _ => " The request itself was carried out.",
    };
    ApiError::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_much_memory",
        format!(
            "the answer has {bytes} bytes, and was dropped: answers that clients of tenant \"{}\" \
             have not read yet hold {} bytes, and may not hold that much more.{done}",
            share.tenant(),
            share.held_by_tenant()
        ),
        "read the answers or close their connections, or ask for a smaller page; the operator of the \
         server can raise [connections] answers_mib",
    )
}
