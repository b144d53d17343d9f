//! HTTP to the store, with a limit on the body of every answer: the client of the store takes lists
//! and errors into memory whole. The date of every answer is remembered.

use super::store_clock::LastDate;
use async_trait::async_trait;
use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use reqwest::header::DATE;
use std::sync::Arc;

/// Maximum length of the body of one answer, in bytes: more than the largest object, and than a
/// list of 1,000 names.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

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
        let (parts, body) = self.client.execute(request).await?.into_parts();
        self.date.answered(parts.headers.get(DATE).and_then(|date| date.to_str().ok()));
        let limited = Limited::new(body, BODY_BYTES_MAX).map_err(|error| {
            match error.downcast::<HttpError>() {
                Ok(error) => *error,
                Err(error) => HttpError::new_boxed(HttpErrorKind::Decode, error),
            }
        });
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(limited)))
    }
}
