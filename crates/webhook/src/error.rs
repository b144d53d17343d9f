//! Errors of calls about webhooks. Why a delivery failed is part of the webhook's state instead.

use std::path::PathBuf;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The tenant has no such webhook. The answer is the same if another tenant has one.
    #[error("there is no webhook {0:?}")]
    NoWebhook(String),
    /// A field is invalid.
    #[error("{field}: {reason}")]
    BadField {
        /// The field of the request.
        field: &'static str,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// The tenant has as many webhooks as it may have.
    #[error("the tenant has {0} webhooks, which is the most")]
    TooMany(usize),
    /// A test of the webhook has not ended yet, or too many others have not.
    #[error("webhook {0:?} cannot be tested now: another test of it runs, or too many deliveries")]
    Busy(String),
    /// The key that the secrets are derived from cannot be used.
    #[error("the key of webhooks in {} cannot be used: {reason}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Every node of a fleet needs the same key, and this one has none from the operator.
    #[error("the nodes of a fleet need the same key for webhooks")]
    NoSharedKey,
    /// The records of the fleet cannot be read or written.
    #[error("the records of the fleet are unavailable: {0}")]
    Fleet(String),
    /// The records cannot be read or written.
    #[error("the records of webhooks cannot be read or written: {0}")]
    Store(String),
}

impl From<isolet_store::Error> for Error {
    fn from(error: isolet_store::Error) -> Self {
        Self::Store(error.to_string())
    }
}
