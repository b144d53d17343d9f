//! What all webhooks of a server share.

use crate::delivery::sender::{Attempt, Sender, TestResult};
use crate::delivery::slots::Slots;
use crate::error::Error;
use crate::model::message::{Message, Origin};
use crate::model::record::WebhookRecord;
use crate::model::secret::MasterKey;
use crate::model::settings::Settings;
use isolet_clock::now_ms;
use isolet_metrics::WebhookMetrics;
use isolet_store::Store;
use isolet_store::audit::Audit;
use std::sync::{Mutex, PoisonError};

/// The tenant of a webhook and its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WebhookName {
    pub(crate) tenant: String,
    pub(crate) id: String,
}

/// What all webhooks of a server share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) audit: Audit,
    pub(crate) settings: Settings,
    pub(crate) metrics: WebhookMetrics,
    pub(crate) slots: Slots,
    sender: Sender,
    /// Read when it is first needed.
    key: Mutex<Option<MasterKey>>,
}

impl Shared {
    pub(crate) fn new(
        store: Store,
        audit: Audit,
        settings: Settings,
        metrics: WebhookMetrics,
    ) -> Self {
        let sender = Sender::new(settings.addresses.clone());
        let slots = Slots::default();
        Self { store, audit, settings, metrics, slots, sender, key: Mutex::default() }
    }

    /// The key of all secrets. Blocks at its first use.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub(crate) fn key(&self) -> Result<MasterKey, Error> {
        let mut held = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = &*held {
            return Ok(key.clone());
        }
        let key = MasterKey::open(&self.settings.key)?;
        *held = Some(key.clone());
        Ok(key)
    }

    pub(crate) fn origin<'a>(&'a self, name: &'a WebhookName) -> Origin<'a> {
        Origin { tenant: &name.tenant, node: self.settings.node.as_deref() }
    }

    /// Signs a message with these versions of the webhook's secret and sends it once.
    pub(crate) async fn send(
        &self,
        name: &WebhookName,
        record: &WebhookRecord,
        signer: &Signer,
        message: &Message,
    ) -> TestResult {
        let timestamp = now_ms() / 1000;
        let signed = signer.versions.iter().map(|version| {
            let secret = signer.key.secret(&name.tenant, &name.id, *version);
            secret.sign(&message.id, timestamp, message.body.as_bytes())
        });
        let signatures = signed.collect::<Vec<_>>().join(" ");
        let result =
            self.sender.send(Attempt { url: &record.url, message, timestamp, signatures }).await;
        self.metrics.attempted(result.error.is_none());
        result
    }
}

/// The secrets that sign the messages of a webhook at one moment.
pub(crate) struct Signer {
    key: MasterKey,
    versions: Vec<u32>,
}

impl Signer {
    /// `None` if the secrets that the owner knows were derived from another key.
    pub(crate) fn of(key: MasterKey, record: &WebhookRecord) -> Option<Self> {
        let fingerprint = key.fingerprint();
        let versions = record.signing(&fingerprint, now_ms());
        (record.secret.key == fingerprint).then_some(Self { key, versions })
    }
}
