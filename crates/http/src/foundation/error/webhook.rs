//! Errors of webhooks as error responses.

use crate::foundation::error::ApiError;
use axum::http::StatusCode as S;
use isolet_webhook::Error;

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::BadField { field, reason } => Self::bad_field(field, &reason),
            Error::NoWebhook(_) => {
                let hint = "GET /v1/webhooks lists the webhooks of the tenant";
                Self::new(S::NOT_FOUND, "no_webhook", message, hint)
            }
            Error::TooMany(_) => {
                let hint = "delete one, or let one receive the events of all sandboxes";
                Self::new(S::TOO_MANY_REQUESTS, "too_many_webhooks", message, hint)
            }
            Error::Busy(_) => {
                Self::new(S::TOO_MANY_REQUESTS, "webhook_busy", message, "retry in a few seconds")
            }
            // The message names files of the server.
            Error::Key { .. } => {
                tracing::error!(error = %message, "webhooks cannot be signed");
                let message = "the server cannot sign webhooks: its key is missing, or is another one than that of the secret";
                let hint = "rotate the secret; if that fails too, the server's log says why";
                Self::new(S::SERVICE_UNAVAILABLE, "webhook_key", message, hint)
            }
            Error::NoSharedKey => {
                let hint = "the operator sets [webhooks] key_file on all nodes, to files with the same content";
                Self::new(S::NOT_IMPLEMENTED, "webhook_key", message, hint)
            }
            Error::Fleet(_) => {
                let hint = "retry in a few seconds; if it fails again, see the server's log";
                Self::new(S::SERVICE_UNAVAILABLE, "fleet_unavailable", message, hint)
            }
            Error::Store(_) => {
                tracing::error!(error = %message, "webhooks cannot be read or written");
                let message = "the records of webhooks cannot be read or written";
                Self::new(S::SERVICE_UNAVAILABLE, "storage_error", message, "see the server's log")
            }
        }
    }
}
