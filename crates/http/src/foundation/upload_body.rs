//! The body of an upload, which must not stall and has a deadline.

use crate::foundation::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long an upload may stall.
const STILL: Duration = Duration::from_secs(60);

/// The body of an upload.
pub(crate) struct UploadBody {
    body: Body,
    most: Duration,
    end: Instant,
}

impl UploadBody {
    /// A body that must end within this time.
    pub(crate) fn new(body: Body, most: Duration) -> Self {
        Self { body, most, end: Instant::now() + most }
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// 408 for an upload that stalls or takes too long, 400 for one that ends early.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            // A body that always has bytes would never wait.
            if Instant::now() >= self.end {
                return Err(self.late());
            }
            let until = self.end.min(Instant::now() + STILL);
            match timeout_at(until, self.body.frame()).await {
                Err(_) => return Err(self.late()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(ApiError::bad_request("the upload ended early")),
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    fn late(&self) -> ApiError {
        let status = StatusCode::REQUEST_TIMEOUT;
        if Instant::now() < self.end {
            let message = "no data of the upload arrived for 60 s";
            return ApiError::new(status, "deadline_exceeded", message, "send it again");
        }
        let message = format!("the upload took longer than {} s", self.most.as_secs());
        let hint = "send it faster, or ask the operator of this server to raise pull_timeout_s";
        ApiError::new(status, "deadline_exceeded", message, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use std::io;

    /// An upload that sends a byte now and then never stalls, and once had no other limit.
    #[tokio::test]
    async fn an_upload_ends_at_its_deadline_whether_it_sends_or_not() {
        let most = Duration::from_millis(10);
        let endless = stream::repeat_with(|| Ok::<_, io::Error>("x"));
        let silent = stream::pending::<io::Result<&str>>();
        for body in [Body::from_stream(endless), Body::from_stream(silent)] {
            let mut body = UploadBody::new(body, most);
            let late = loop {
                if let Err(error) = body.next().await {
                    break error;
                }
            };
            assert!(format!("{late:?}").contains("took longer than"), "{late:?}");
        }
    }

    #[tokio::test]
    async fn an_upload_is_read_to_its_end() {
        let parts = stream::iter(["a", "b"]).map(Ok::<_, io::Error>);
        let mut body = UploadBody::new(Body::from_stream(parts), Duration::from_secs(60));
        assert_eq!(body.next().await.unwrap().unwrap(), "a");
        assert_eq!(body.next().await.unwrap().unwrap(), "b");
        assert!(body.next().await.unwrap().is_none());
    }
}
