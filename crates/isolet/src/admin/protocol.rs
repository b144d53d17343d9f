//! The messages: one line of JSON each. The server answers each request with one response.

use serde::{Deserialize, Serialize};

/// A request to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum AdminRequest {
    /// Make a sandbox stand still until it is released or the connection ends.
    Hold {
        /// The server's name for it.
        sandbox: String,
    },
    /// Let the sandbox continue.
    Release,
    /// Invalidate the links of all tenants, of one, or of one sandbox.
    RotateLinks { tenant: Option<String>, sandbox: Option<String> },
    /// Replace the key that signs audit logs.
    RotateAuditKey,
    /// Replace the filter of the log, or only return it.
    LogFilter { filter: Option<String> },
}

/// A response of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(crate) enum AdminResponse {
    /// The sandbox stands still.
    Held { state: String, frozen: bool, unsaved_shells: usize },
    /// There is no such sandbox any more.
    Gone,
    /// The sandbox continues, after this time.
    Released { stood_us: u64 },
    /// The sandbox continued before, because it stood still for too long.
    Expired,
    /// The links are invalid.
    LinksRotated { ports: usize },
    /// Another key signs the audit logs.
    AuditKeyRotated { from: String, to: String, logs: usize },
    /// The filter of the log.
    LogFilter { filter: String },
    /// The request failed, and changed nothing unless the message says so.
    Failed { message: String },
}
