//! The record of a webhook: what its owner has set.

use crate::error::Error;
use crate::model::address::AddressRules;
use crate::model::event::EventFilter;
use crate::model::spec::{LABEL_BYTES_MAX, NewWebhook, WebhookChange};
use crate::model::url::TargetUrl;
use isolet_store::audit::ReadEntry;
use serde::{Deserialize, Serialize};

/// The version of the record's form.
const FORM: u32 = 1;
/// How long the secret before a rotation still signs, in ms: a day.
const ROTATION_MS: i64 = 24 * 3600 * 1000;

/// A secret, which is derived from the key of the server and never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecretVersion {
    /// Counts rotations, from 1.
    pub(crate) version: u32,
    /// The fingerprint of the key that it is derived from.
    pub(crate) key: String,
}

/// The secret before the last rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PreviousSecret {
    #[serde(flatten)]
    pub(crate) secret: SecretVersion,
    /// When it stops signing, in ms since 1970.
    pub(crate) until_ms: i64,
}

/// What the owner of a webhook has set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WebhookRecord {
    v: u32,
    pub(crate) url: TargetUrl,
    pub(crate) events: EventFilter,
    pub(crate) sandbox: Option<String>,
    pub(crate) label: String,
    pub(crate) enabled: bool,
    pub(crate) created_at_ms: i64,
    /// Counts the changes after which deliveries begin with a clean slate.
    pub(crate) generation: u64,
    pub(crate) secret: SecretVersion,
    pub(crate) previous: Option<PreviousSecret>,
}

impl WebhookRecord {
    /// The record of a new webhook, whose secret is derived from the key with this fingerprint.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub(crate) fn new(
        spec: NewWebhook,
        rules: &AddressRules,
        key: String,
        now_ms: i64,
    ) -> Result<Self, Error> {
        let url = TargetUrl::parse(&spec.url)?;
        url.check(rules)?;
        if spec.label.len() > LABEL_BYTES_MAX {
            let reason = format!("at most {LABEL_BYTES_MAX} bytes");
            return Err(Error::BadField { field: "label", reason });
        }
        Ok(Self {
            v: FORM,
            url,
            events: spec.events.map(EventFilter::parse).transpose()?.unwrap_or_default(),
            sandbox: spec.sandbox,
            label: spec.label,
            enabled: true,
            created_at_ms: now_ms,
            generation: 0,
            secret: SecretVersion { version: 1, key },
            previous: None,
        })
    }

    /// The record after a change.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub(crate) fn changed(
        &self,
        change: WebhookChange,
        rules: &AddressRules,
    ) -> Result<Self, Error> {
        let mut record = self.clone();
        let is_fresh = change.url.is_some() || change.enabled == Some(true);
        if let Some(url) = change.url {
            record.url = TargetUrl::parse(&url)?;
            record.url.check(rules)?;
        }
        if let Some(events) = change.events {
            record.events = EventFilter::parse(events)?;
        }
        record.enabled = change.enabled.unwrap_or(record.enabled);
        record.generation += u64::from(is_fresh);
        Ok(record)
    }

    /// The record with another secret, derived from the key with this fingerprint.
    pub(crate) fn rotated(&self, key: String, now_ms: i64) -> Self {
        let mut record = self.clone();
        let until_ms = now_ms.saturating_add(ROTATION_MS);
        record.previous = Some(PreviousSecret { secret: self.secret.clone(), until_ms });
        record.secret = SecretVersion { version: self.secret.version.saturating_add(1), key };
        record
    }

    /// The versions of the secrets that sign now: the current one, and before a day has passed since a
    /// rotation the one before.
    pub(crate) fn signing(&self, key: &str, now_ms: i64) -> Vec<u32> {
        let previous = self.previous.iter().filter(|previous| previous.until_ms > now_ms);
        let all = std::iter::once(&self.secret).chain(previous.map(|previous| &previous.secret));
        all.filter(|secret| secret.key == key).map(|secret| secret.version).collect()
    }

    /// Whether the webhook receives an entry of the audit log.
    pub(crate) fn wants(&self, entry: &ReadEntry) -> bool {
        let here = self.sandbox.is_none() || self.sandbox == entry.sandbox;
        here && self.events.wants(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> WebhookRecord {
        let spec = NewWebhook { url: "https://a.example/x".to_owned(), ..NewWebhook::default() };
        WebhookRecord::new(spec, &AddressRules::default(), "k1".to_owned(), 1000).unwrap()
    }

    #[test]
    fn both_secrets_sign_for_a_day_after_a_rotation() {
        let rotated = record().rotated("k1".to_owned(), 5000);
        assert_eq!(rotated.signing("k1", 5000 + ROTATION_MS - 1), [2, 1]);
        assert_eq!(rotated.signing("k1", 5000 + ROTATION_MS), [2]);
        // Nothing signs with a secret that the owner has never seen.
        assert_eq!(record().signing("k2", 5000), [] as [u32; 0]);
        assert_eq!(record().rotated("k2".to_owned(), 5000).signing("k2", 5001), [2]);
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let rules = AddressRules::default();
        let change = WebhookChange { enabled: Some(false), ..WebhookChange::default() };
        let stopped = record().changed(change, &rules).unwrap();
        assert_eq!((stopped.enabled, stopped.generation), (false, 0));
        let change = WebhookChange { enabled: Some(true), ..WebhookChange::default() };
        let again = stopped.changed(change, &rules).unwrap();
        assert_eq!((again.enabled, again.generation), (true, 1));
        assert_eq!(again.url, record().url);
        let url = Some("http://10.0.0.1/".to_owned());
        let change = WebhookChange { url, ..WebhookChange::default() };
        assert!(again.changed(change, &rules).is_err());
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = record().rotated("k2".to_owned(), 5000);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<WebhookRecord>(&text).unwrap(), record);
    }
}
