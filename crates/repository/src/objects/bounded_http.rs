//! HTTP to the store, with a limit on the body of every answer: the client of the store takes lists
//! and errors into memory whole. And with a limit on silence, so that a store that hangs costs a retry and not
//! the whole time of a request. The date of every answer is remembered.

use super::store_clock::LastDate;
use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use reqwest::Method;
use reqwest::header::DATE;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Maximum length of the body of one answer, in bytes: more than the largest object, and than a
/// list of 1,000 names.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long an answer may stand still: until its head after a request without a body, and between two pieces
/// of its body. The head after a request with a body comes when all of it was sent, which may take longer.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Connects with the limit.
#[derive(Debug)]
pub(super) struct BoundedConnector {
    pub(super) date: Arc<LastDate>,
}

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(BoundedClient { client, date: Arc::clone(&self.date) }))
    }
}

#[derive(Debug)]
struct BoundedClient {
    client: HttpClient,
    date: Arc<LastDate>,
}

#[async_trait]
impl HttpService for BoundedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_short = matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE);
        let answering = self.client.execute(request);
        let answer = match is_short {
            true => timeout(SILENCE_MAX, answering).await.map_err(|_| silent())?,
            false => answering.await,
        };
        let (parts, body) = answer?.into_parts();
        self.date.answered(parts.headers.get(DATE).and_then(|date| date.to_str().ok()));
        let limited = Limited::new(body, BODY_BYTES_MAX).map_err(|error| {
            match error.downcast::<HttpError>() {
                Ok(error) => *error,
                Err(error) => HttpError::new_boxed(HttpErrorKind::Decode, error),
            }
        });
        let until = Box::pin(sleep(SILENCE_MAX));
        let body = SteadyBody { body: Box::pin(limited), until, waits: false };
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// A body that ends with an error when it stands still.
struct SteadyBody<B> {
    body: Pin<Box<B>>,
    until: Pin<Box<Sleep>>,
    /// Whether the reader waits for the body. Only that counts: a reader may be slow itself.
    waits: bool,
}

impl<B: Body<Data = Bytes, Error = HttpError>> Body for SteadyBody<B> {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = this.body.as_mut().poll_frame(context) {
            this.waits = false;
            return Poll::Ready(frame);
        }
        if !this.waits {
            this.waits = true;
            this.until.as_mut().reset(Instant::now() + SILENCE_MAX);
        }
        match this.until.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(silent()))),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn silent() -> HttpError {
    let reason = format!("nothing came for {} s", SILENCE_MAX.as_secs());
    HttpError::new(HttpErrorKind::Timeout, std::io::Error::new(ErrorKind::TimedOut, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;
    use object_store::client::HttpRequestBody;

    /// A store that sends no head, or the beginning of a body.
    #[derive(Debug)]
    struct Hanging {
        sends_head: bool,
    }

    #[async_trait]
    impl HttpService for Hanging {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            if !self.sends_head {
                std::future::pending::<()>().await;
            }
            let begun = stream::iter([Ok(Frame::data(Bytes::from_static(b"begun")))]);
            let body = StreamBody::new(begun.chain(stream::pending()));
            Ok(HttpResponse::new(HttpResponseBody::new(body)))
        }
    }

    async fn ask(method: Method, sends_head: bool) -> Result<Bytes, HttpError> {
        let client = HttpClient::new(Hanging { sends_head });
        let bounded = BoundedClient { client, date: Arc::default() };
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method;
        Ok(bounded.call(request).await?.into_body().collect().await?.to_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_silent_costs_a_retry_and_one_that_still_receives_has_time() {
        for sends_head in [false, true] {
            let asked = timeout(2 * SILENCE_MAX, ask(Method::GET, sends_head)).await;
            let error = asked.expect("it ends").expect_err("it is silent");
            assert_eq!(error.kind(), HttpErrorKind::Timeout, "{error:?}");
        }
        assert!(timeout(10 * SILENCE_MAX, ask(Method::PUT, false)).await.is_err());
    }
}
