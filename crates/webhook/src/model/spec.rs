//! What a request says about a webhook.

/// Maximum number of webhooks of a tenant.
pub const WEBHOOKS_MAX: usize = 16;
/// The longest label, in bytes.
pub const LABEL_BYTES_MAX: usize = 200;

/// A webhook that a request creates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewWebhook {
    /// Where events are sent to.
    pub url: String,
    /// The events that it receives; `None`: `sandbox.*`.
    pub events: Option<Vec<String>>,
    /// The only sandbox whose events it receives; `None`: all.
    pub sandbox: Option<String>,
    /// A name for people.
    pub label: String,
}

/// A change of a webhook. `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookChange {
    /// Where events are sent to.
    pub url: Option<String>,
    /// The events that it receives.
    pub events: Option<Vec<String>>,
    /// Whether events are sent. `true` also ends what the server has decided.
    pub enabled: Option<bool>,
}
