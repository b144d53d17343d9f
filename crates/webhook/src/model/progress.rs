//! How far the deliveries of a webhook are.

use crate::model::record::WebhookRecord;
use crate::model::schedule::RetrySchedule;
use isolet_store::audit::AuditPosition;
use serde::{Deserialize, Serialize};

/// The longest error that is stored, in bytes.
const ERROR_BYTES_MAX: usize = 300;

/// Why the server has stopped the deliveries of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledReason {
    /// Deliveries have failed for too long.
    Failing,
    /// The receiver has answered 410.
    Gone,
    /// The key that secrets are derived from is another one, so the receiver cannot verify signatures.
    KeyChanged,
}

/// The server has stopped the deliveries of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
    /// Why.
    pub reason: DisabledReason,
    /// When, in ms since 1970.
    pub at_ms: i64,
}

/// How far the deliveries of a webhook are on this server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The last entry of the audit log that was delivered, or is of no interest.
    pub position: AuditPosition,
    /// Number of events that were delivered.
    pub delivered: u64,
    /// Number of failures in a row.
    pub failures: u32,
    /// When the first of them was, in ms since 1970.
    pub first_failure_ms: Option<i64>,
    /// The status of the last answer; `None`: the last attempt got none.
    pub last_status: Option<u16>,
    /// Why the last attempt failed; `None`: it did not.
    pub last_error: Option<String>,
    /// When the last attempt was, in ms since 1970.
    pub last_attempt_ms: Option<i64>,
    /// When the next attempt is, in ms since 1970; `None`: with the next event.
    pub next_attempt_ms: Option<i64>,
    /// What the server has decided.
    pub disabled: Option<Disabled>,
    /// The generation of the record that the failures belong to.
    pub generation: u64,
}

impl Progress {
    /// Forgets failures, and what followed from them, if the owner has changed the webhook since.
    pub(crate) fn adopt(&mut self, record: &WebhookRecord) {
        if self.generation == record.generation {
            return;
        }
        self.generation = record.generation;
        self.failures = 0;
        self.first_failure_ms = None;
        self.next_attempt_ms = None;
        self.disabled = None;
    }

    /// The receiver has taken an event; `position` is behind it.
    pub(crate) fn succeeded(&mut self, status: u16, position: AuditPosition, now_ms: i64) {
        self.position = position;
        self.delivered += 1;
        self.failures = 0;
        self.first_failure_ms = None;
        self.last_status = Some(status);
        self.last_error = None;
        self.last_attempt_ms = Some(now_ms);
        self.next_attempt_ms = None;
    }

    /// An attempt has failed. Returns why the webhook is disabled, if it is from now on.
    pub(crate) fn failed(
        &mut self,
        status: Option<u16>,
        error: String,
        schedule: &RetrySchedule,
        chance: f64,
        now_ms: i64,
    ) -> Option<DisabledReason> {
        self.failures = self.failures.saturating_add(1);
        let first = *self.first_failure_ms.get_or_insert(now_ms);
        let mut error = error;
        error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
        self.last_status = status;
        self.last_error = Some(error);
        self.last_attempt_ms = Some(now_ms);
        let wait = schedule.wait(self.failures, chance).as_millis();
        self.next_attempt_ms = Some(now_ms.saturating_add(i64::try_from(wait).unwrap_or(i64::MAX)));
        let reason = if status == Some(410) {
            DisabledReason::Gone
        } else if schedule.gives_up(first, now_ms) {
            DisabledReason::Failing
        } else {
            return None;
        };
        self.disable(reason, now_ms);
        Some(reason)
    }

    /// Stops the deliveries.
    pub(crate) fn disable(&mut self, reason: DisabledReason, now_ms: i64) {
        self.disabled = Some(Disabled { reason, at_ms: now_ms });
        self.next_attempt_ms = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::AddressRules;
    use crate::model::spec::{NewWebhook, WebhookChange};

    #[test]
    fn failures_lead_to_retries_and_then_to_the_end() {
        let schedule = RetrySchedule::default();
        let mut progress = Progress::default();
        let mut now = 1000;
        let mut attempts = 0;
        let reason = loop {
            attempts += 1;
            let failed = progress.failed(Some(500), "x".repeat(999), &schedule, 0.0, now);
            if let Some(reason) = failed {
                break reason;
            }
            now = progress.next_attempt_ms.unwrap();
        };
        assert_eq!(reason, DisabledReason::Failing);
        // 5 attempts in the first hour, then one in each hour.
        assert!((70..=80).contains(&attempts), "{attempts}");
        assert_eq!(progress.last_error.as_ref().unwrap().len(), ERROR_BYTES_MAX);
        assert_eq!(progress.next_attempt_ms, None);
    }

    #[test]
    fn a_success_ends_a_row_of_failures_and_410_the_webhook() {
        let schedule = RetrySchedule::default();
        let mut progress = Progress::default();
        assert_eq!(progress.failed(None, "no answer".to_owned(), &schedule, 0.0, 1000), None);
        let position = AuditPosition { seq: 4, ..AuditPosition::default() };
        progress.succeeded(204, position.clone(), 2000);
        assert_eq!((progress.failures, progress.first_failure_ms), (0, None));
        assert_eq!((progress.delivered, progress.position.clone()), (1, position));
        let gone = progress.failed(Some(410), "gone".to_owned(), &schedule, 0.0, 3000);
        assert_eq!(gone, Some(DisabledReason::Gone));
        let spec = NewWebhook { url: "https://a.example".to_owned(), ..NewWebhook::default() };
        let rules = AddressRules::default();
        let record = WebhookRecord::new(spec, &rules, String::new(), 0).unwrap();
        progress.adopt(&record);
        assert!(progress.disabled.is_some(), "nothing was changed");
        let change = WebhookChange { enabled: Some(true), ..WebhookChange::default() };
        progress.adopt(&record.changed(change, &rules).unwrap());
        assert_eq!((progress.disabled, progress.failures), (None, 0));
    }
}
