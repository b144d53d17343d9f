//! The body of a request that may have to be sent twice: the first node that receives it may not be
//! the owner any more.
//!
//! The beginning of a body is kept until more of it is sent than fits. A request whose body is short
//! enough is repeated without the client; that of a long upload is not.

use axum::body::{Body, Bytes};
use hyper::body::{Body as _, Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// The most bytes that are kept of one body that arrives in parts. A node that is not the owner has answered so before it
/// reads more than its connection buffers.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// The longest body that is read before its request is sent.
const SHORT_BYTES_MAX: u64 = 16 * 1024;
/// How long that may take. A client usually sends a short body together with the head.
const SHORT_WAIT: Duration = Duration::from_millis(2);

/// A body that can be read more than once while its beginning is kept.
pub(super) struct ReplayBody(Arc<Mutex<State>>);

struct State {
    rest: Body,
    /// What was read of the body so far.
    kept: Vec<Bytes>,
    kept_bytes: usize,
    /// Whether more was read than is kept.
    lost: bool,
    /// What ended the body early while nobody read it.
    failed: Option<axum::Error>,
    /// The number of the reader that may read; earlier ones are over.
    reader: u32,
    /// The size of the whole body.
    size: SizeHint,
}

impl State {
    fn keep(&mut self, data: &Bytes) {
        self.kept_bytes += data.len();
        // One that was in memory as a whole, such as JSON that was read before, costs nothing more.
        let is_whole = self.size.exact() == u64::try_from(data.len()).ok();
        if self.lost || self.kept_bytes > KEPT_BYTES_MAX && !is_whole {
            self.lost = true;
            self.kept.clear();
        } else {
            self.kept.push(data.clone());
        }
    }
}

impl ReplayBody {
    pub(super) fn new(body: Body) -> Self {
        let size = body.size_hint();
        let state = State {
            rest: body,
            kept: Vec::new(),
            kept_bytes: 0,
            lost: false,
            failed: None,
            reader: 0,
            size,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Reads a short body before it is sent. So its head and its body leave in one packet and wake the
    /// other node once; a body that arrives later than its head is sent as it arrives.
    pub(super) async fn read_short(&self) {
        let size = lock(&self.0).size.exact();
        if !size.is_some_and(|size| (1..=SHORT_BYTES_MAX).contains(&size)) {
            return;
        }
        let read = poll_fn(|cx| {
            let mut state = lock(&self.0);
            while !state.rest.is_end_stream() {
                match Pin::new(&mut state.rest).poll_frame(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                        Some(data) => state.keep(data),
                        // A body with a length has no trailers.
                        None => state.lost = true,
                    },
                    Poll::Ready(Some(Err(error))) => {
                        state.failed = Some(error);
                        break;
                    }
                }
            }
            Poll::Ready(())
        });
        let _ = timeout(SHORT_WAIT, read).await;
    }

    /// Whether another reader would get the whole body.
    pub(super) fn is_whole(&self) -> bool {
        !lock(&self.0).lost
    }

    /// Reads the body from its beginning. Ends earlier readers.
    pub(super) fn read(&self) -> Body {
        let mut state = lock(&self.0);
        if state.kept.is_empty() && state.rest.is_end_stream() {
            return Body::empty();
        }
        state.reader += 1;
        Body::new(Reader { state: Arc::clone(&self.0), number: state.reader, at: 0 })
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a body from its beginning.
struct Reader {
    state: Arc<Mutex<State>>,
    number: u32,
    /// How many of the kept parts were read.
    at: usize,
}

/// Another reader reads the body now.
#[derive(Debug, thiserror::Error)]
#[error("the request is sent to another node")]
struct Superseded;

impl hyper::body::Body for Reader {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let own = Arc::clone(&self.state);
        let mut state = lock(&own);
        if state.reader != self.number {
            return Poll::Ready(Some(Err(axum::Error::new(Superseded))));
        }
        if let Some(data) = state.kept.get(self.at) {
            self.at += 1;
            return Poll::Ready(Some(Ok(Frame::data(data.clone()))));
        }
        if let Some(error) = state.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = Pin::new(&mut state.rest).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            match frame.data_ref() {
                Some(data) => {
                    state.keep(data);
                    self.at += 1;
                }
                // Trailers are not kept.
                None => state.lost = true,
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let state = lock(&self.state);
        self.at >= state.kept.len() && state.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let state = lock(&self.state);
        // Before the first read it is the size of the whole body, from which a length is sent.
        if self.at == 0 { state.size } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::BodyExt;
    use std::convert::Infallible;

    fn body(parts: &[&'static [u8]]) -> ReplayBody {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok::<_, Infallible>(Bytes::from_static(part))).collect();
        ReplayBody::new(Body::from_stream(stream::iter(parts)))
    }

    async fn whole(body: Body) -> Result<Bytes, axum::Error> {
        Ok(body.collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn a_short_body_is_read_again_from_any_point() {
        let body = body(&[b"ab", b"cd", b"ef"]);
        let mut first = body.read();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        let second = body.read();
        assert!(first.frame().await.unwrap().is_err(), "the first reader is over");
        assert_eq!(whole(second).await.unwrap(), "abcdef");
        assert_eq!(whole(body.read()).await.unwrap(), "abcdef");
        assert!(body.is_whole());
    }

    #[tokio::test]
    async fn a_long_body_is_not_kept() {
        let long: &[u8] = &[7; KEPT_BYTES_MAX];
        let body = body(&[long, b"x"]);
        let mut reader = body.read();
        reader.frame().await.unwrap().unwrap();
        assert!(body.is_whole(), "as much as fits");
        assert_eq!(whole(reader).await.unwrap(), "x");
        assert!(!body.is_whole());
        assert!(lock(&body.0).kept.is_empty());
    }

    #[tokio::test]
    async fn a_short_body_is_read_before_it_is_sent() {
        let short = ReplayBody::new(Body::from("abc"));
        short.read_short().await;
        assert_eq!(lock(&short.0).kept_bytes, 3);
        let reader = short.read();
        assert_eq!(reader.size_hint().exact(), Some(3), "the length is sent");
        assert!(!reader.is_end_stream());
        assert_eq!(whole(reader).await.unwrap(), "abc");
        let long = ReplayBody::new(Body::from(vec![7; 20_000]));
        long.read_short().await;
        assert_eq!(lock(&long.0).kept_bytes, 0);
        // A body without a length is not waited for.
        let endless = stream::pending::<Result<Bytes, Infallible>>();
        ReplayBody::new(Body::from_stream(endless)).read_short().await;
    }

    /// A body with a length whose bytes arrive later, or never.
    struct Later(Option<axum::Error>);

    impl hyper::body::Body for Later {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            self.0.take().map_or(Poll::Pending, |error| Poll::Ready(Some(Err(error))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(3)
        }
    }

    #[tokio::test]
    async fn a_short_body_that_does_not_arrive_is_not_waited_for_and_an_error_is_passed_on() {
        let late = ReplayBody::new(Body::new(Later(None)));
        late.read_short().await;
        assert!(late.is_whole() && !late.read().is_end_stream());
        let broken = ReplayBody::new(Body::new(Later(Some(axum::Error::new(Superseded)))));
        broken.read_short().await;
        assert!(whole(broken.read()).await.is_err());
    }

    #[tokio::test]
    async fn a_length_is_that_of_the_whole_body() {
        let body = ReplayBody::new(Body::from("abc"));
        assert_eq!(body.read().size_hint().exact(), Some(3));
        assert_eq!(whole(body.read()).await.unwrap(), "abc");
        let empty = ReplayBody::new(Body::empty());
        assert!(empty.read().is_end_stream() && empty.is_whole());
    }
}
