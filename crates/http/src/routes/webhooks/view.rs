//! Bodies of the calls of webhooks.

use crate::auth::caller::Caller;
use crate::foundation::json::not_null;
use axum::http::Uri;
use isolet_webhook::{
    Disabled, DisabledReason, NewWebhook, TestResult, WebhookChange, WebhookInfo,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A webhook, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(crate) struct WebhookView {
    /// The id.
    id: String,
    /// The URL that events are sent to. For a read-only key only its scheme and host.
    url: String,
    /// The events that it receives: names, and patterns such as `sandbox.*`.
    events: Vec<String>,
    /// The only sandbox whose events it receives; `null`: all.
    sandbox: Option<String>,
    /// The owner's name for it.
    label: String,
    /// Whether its owner wants events. See `delivery.disabled` for what the server has decided.
    enabled: bool,
    /// When it was created, in ms since 1970.
    created_at_ms: i64,
    /// Until when the secret before the last rotation signs too, in ms since 1970; `null`: it does not.
    previous_secret_until_ms: Option<i64>,
    /// How far the deliveries are.
    delivery: DeliveryView,
}

/// How far the deliveries of a webhook are.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookDelivery)]
pub(crate) struct DeliveryView {
    /// Number of events that the receiver has taken.
    delivered: u64,
    /// Number of entries of the audit log behind the last event that was delivered. Some of them may be no
    /// events of this webhook.
    pending: u64,
    /// Number of failed attempts in a row.
    failures: u32,
    /// The status of the last answer; `null`: there was none.
    last_status: Option<u16>,
    /// Why the last attempt failed; `null`: it did not.
    last_error: Option<String>,
    /// When the last attempt was, in ms since 1970; `null`: there was none.
    last_attempt_ms: Option<i64>,
    /// When the next attempt is, in ms since 1970; `null`: with the next event.
    next_attempt_ms: Option<i64>,
    /// Why the server has stopped the deliveries; `null`: it has not. `PATCH` with `enabled: true` starts
    /// them again.
    disabled: Option<DisabledView>,
}

/// Why and when the server has stopped the deliveries of a webhook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookDisabled)]
pub(crate) struct DisabledView {
    /// The reason.
    reason: DisabledReasonView,
    /// When, in ms since 1970.
    at_ms: i64,
}

/// Why the server has stopped the deliveries of a webhook.
///
/// - `failing`: every attempt failed for three days.
/// - `gone`: the receiver answered 410.
/// - `key_changed`: the server signs with another key, so the receiver's secret is void. Rotate the
///   secret, then enable the webhook.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WebhookDisabledReason)]
pub(crate) enum DisabledReasonView {
    Failing,
    Gone,
    KeyChanged,
}

impl From<Disabled> for DisabledView {
    fn from(disabled: Disabled) -> Self {
        let reason = match disabled.reason {
            DisabledReason::Failing => DisabledReasonView::Failing,
            DisabledReason::Gone => DisabledReasonView::Gone,
            DisabledReason::KeyChanged => DisabledReasonView::KeyChanged,
        };
        Self { reason, at_ms: disabled.at_ms }
    }
}

impl WebhookView {
    /// What a caller may see. The URLs of many receivers are secrets, with which a key that may only read
    /// could send to them.
    pub(crate) fn for_caller(mut self, caller: &Caller) -> Self {
        if caller.read_only {
            self.url = origin(&self.url);
            self.delivery.last_error = None;
        }
        self
    }
}

/// Scheme and host of a URL.
fn origin(url: &str) -> String {
    let parsed = url.parse::<Uri>().ok();
    let parts = parsed.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.host()?)));
    parts.map_or_else(String::new, |(scheme, host)| format!("{scheme}://{host}/…"))
}

impl From<WebhookInfo> for WebhookView {
    fn from(info: WebhookInfo) -> Self {
        let progress = info.progress;
        Self {
            id: info.id,
            url: info.url,
            events: info.events,
            sandbox: info.sandbox,
            label: info.label,
            enabled: info.enabled,
            created_at_ms: info.created_at_ms,
            previous_secret_until_ms: info.previous_secret_until_ms,
            delivery: DeliveryView {
                delivered: progress.delivered,
                pending: info.pending,
                failures: progress.failures,
                last_status: progress.last_status,
                last_error: progress.last_error,
                last_attempt_ms: progress.last_attempt_ms,
                next_attempt_ms: progress.next_attempt_ms,
                disabled: progress.disabled.map(DisabledView::from),
            },
        }
    }
}

/// A webhook with a new secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CreatedWebhook)]
pub(crate) struct CreatedWebhook {
    /// The secret that verifies signatures: `whsec_` and base64. The server cannot show it again.
    pub(crate) secret: String,
    #[serde(flatten)]
    pub(crate) webhook: WebhookView,
}

/// The parameters of a new webhook.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateWebhook)]
pub(crate) struct CreateWebhook {
    /// Where events are sent to: an `https` or `http` URL of at most 2048 bytes, without a user and a
    /// fragment.
    url: String,
    /// The events that it receives: names such as `sandbox.failed`, all of a subject such as `sandbox.*`, or
    /// `*`. Defaults to `sandbox.*`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    events: Option<Vec<String>>,
    /// Receive the events of this sandbox only. It need not exist yet.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    sandbox: Option<String>,
    /// A name by which people recognise the webhook, at most 200 bytes.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    label: Option<String>,
}

impl From<CreateWebhook> for NewWebhook {
    fn from(body: CreateWebhook) -> Self {
        let CreateWebhook { url, events, sandbox, label } = body;
        Self { url, events, sandbox, label: label.unwrap_or_default() }
    }
}

/// A change of a webhook.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = UpdateWebhook)]
pub(crate) struct UpdateWebhook {
    /// Where events are sent to.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    url: Option<String>,
    /// The events that it receives.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    events: Option<Vec<String>>,
    /// Whether events are sent.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    enabled: Option<bool>,
}

impl From<UpdateWebhook> for WebhookChange {
    fn from(body: UpdateWebhook) -> Self {
        let UpdateWebhook { url, events, enabled } = body;
        Self { url, events, enabled }
    }
}

/// How a test of a webhook ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookTest)]
pub(crate) struct WebhookTestView {
    /// The status of the receiver's answer; `null`: there was no answer.
    status: Option<u16>,
    /// Why the attempt failed; `null`: the receiver answered with 2xx.
    error: Option<String>,
    /// How long the attempt took, in ms.
    duration_ms: u64,
}

impl From<TestResult> for WebhookTestView {
    fn from(result: TestResult) -> Self {
        let TestResult { status, error, duration_ms } = result;
        Self { status, error, duration_ms }
    }
}
