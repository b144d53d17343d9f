//! Webhooks and their deliveries.

use crate::labels::{Label, described};
use crate::requests::whole;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Webhooks of all tenants. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct WebhookMetrics {
    delivered: Counter,
    failed: Counter,
    webhooks: Family<Label, Gauge>,
    pending: Gauge,
}

impl WebhookMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let [delivered, failed] = described(
            "isolet_webhook_attempts",
            "Requests to receivers of webhooks; a success is an answer with 2xx",
        )
        .family(registry, "result", ["success", "failure"]);
        let webhooks = described(
            "isolet_webhooks",
            "Webhooks; disabled are those that their owner or the server has stopped",
        )
        .register(registry, Family::default());
        let pending = described(
            "isolet_webhook_pending",
            "Entries of audit logs that webhooks have not taken yet",
        )
        .register(registry, Gauge::default());
        Self { delivered, failed, webhooks, pending }
    }

    /// Counts an attempt.
    pub fn attempted(&self, succeeded: bool) {
        if succeeded {
            self.delivered.inc()
        } else {
            self.failed.inc()
        };
    }

    /// Sets the number of webhooks, and of the entries that they have not taken yet.
    pub fn set(&self, enabled: usize, disabled: usize, pending: u64) {
        self.webhooks.get_or_create(&[("state", "enabled")]).set(whole(enabled));
        self.webhooks.get_or_create(&[("state", "disabled")]).set(whole(disabled));
        self.pending.set(i64::try_from(pending).unwrap_or(i64::MAX));
    }
}
