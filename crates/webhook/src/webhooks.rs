//! [`Webhooks`]: all webhooks of a server.

mod entry;
pub(crate) mod fleet;

use crate::delivery::sender::{ATTEMPT, TestResult};
use crate::delivery::shared::{Shared, Signer, WebhookName};
use crate::error::Error;
use crate::model::message::Message;
use crate::model::progress::Progress;
use crate::model::record::WebhookRecord;
use crate::model::settings::Settings;
use crate::model::spec::{NewWebhook, WEBHOOKS_MAX, WebhookChange};
use entry::Entry;
use fleet::{FleetRecords, PutOutcome, ReplaceOutcome};
use isolet_clock::{now_ms, rfc3339};
use isolet_metrics::WebhookMetrics;
use isolet_store::audit::{Audit, AuditPosition};
use isolet_store::{Store, StoredAnswer, WebhookRow};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::{error, warn};

/// How long opening the audit log of a tenant may take.
const LOG_WAIT: Duration = Duration::from_secs(10);

/// A webhook, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookInfo {
    /// The id.
    pub id: String,
    /// Where events are sent to.
    pub url: String,
    /// The events that it receives.
    pub events: Vec<String>,
    /// The only sandbox whose events it receives; `None`: all.
    pub sandbox: Option<String>,
    /// A name for people.
    pub label: String,
    /// Whether its owner wants events.
    pub enabled: bool,
    /// When it was created, in ms since 1970.
    pub created_at_ms: i64,
    /// When the secret before the last rotation stops signing, in ms since 1970.
    pub previous_secret_until_ms: Option<i64>,
    /// How far the deliveries are.
    pub progress: Progress,
    /// Number of entries of the audit log behind the cursor.
    pub pending: u64,
}

/// An idempotency key, under which the id of a new webhook is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAnswer {
    /// The value of `Idempotency-Key`.
    pub key: String,
    /// SHA-256 of the route and the body.
    pub body: [u8; 32],
}

/// All webhooks of a server. Clones share them.
#[derive(Clone)]
pub struct Webhooks {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    entries: Mutex<BTreeMap<WebhookName, Entry>>,
    /// One change of a record at a time.
    changing: tokio::sync::Mutex<()>,
    /// One comparison with the records at a time, so that none is made with an earlier state.
    syncing: tokio::sync::Mutex<()>,
    /// Gives records to all nodes; `None`: this server is no node of a fleet.
    fleet: Option<Arc<dyn FleetRecords>>,
    /// Follows the records of the fleet.
    following: Mutex<Option<AbortHandle>>,
}

impl Webhooks {
    /// Reads all webhooks and begins to deliver their events. In a fleet, records are changed for all
    /// nodes.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn open(
        store: Store,
        audit: Audit,
        settings: Settings,
        metrics: WebhookMetrics,
        fleet: Option<Arc<dyn FleetRecords>>,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared::new(store, audit, settings, metrics));
        let changes = fleet.as_ref().map(|fleet| fleet.changed());
        let inner = Arc::new(Inner {
            shared,
            entries: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            syncing: tokio::sync::Mutex::default(),
            fleet,
            following: Mutex::default(),
        });
        inner.sync().await?;
        if let Some(changes) = changes {
            let following = tokio::spawn(follow(Arc::downgrade(&inner), changes)).abort_handle();
            *inner.following.lock().unwrap_or_else(PoisonError::into_inner) = Some(following);
        }
        Ok(Self { inner })
    }

    /// The webhooks of a tenant, the oldest first.
    #[must_use]
    pub fn list(&self, tenant: &str) -> Vec<WebhookInfo> {
        let entries = self.inner.entries();
        let first = WebhookName { tenant: tenant.to_owned(), id: String::new() };
        let all = entries.range((Bound::Included(first), Bound::Unbounded));
        let own = all.take_while(|(name, _)| name.tenant == tenant);
        let mut all: Vec<_> = own.map(|(name, entry)| entry.info(name)).collect();
        all.sort_by_key(|info| info.created_at_ms);
        all
    }

    /// One webhook.
    ///
    /// # Errors
    /// [`Error::NoWebhook`].
    pub fn get(&self, tenant: &str, id: &str) -> Result<WebhookInfo, Error> {
        self.inner.with(tenant, id, |name, entry| entry.info(name))
    }

    /// Checks what a request says about a new webhook, and that the server can sign.
    ///
    /// # Errors
    /// [`Error::BadField`], [`Error::Key`].
    pub async fn check(&self, spec: &NewWebhook) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let addresses = &shared.settings.addresses;
        WebhookRecord::new(spec.clone(), addresses, String::new(), 0)?;
        self.inner.key_fingerprint().await.map(|_| ())
    }

    /// Creates a webhook, which receives the events from now on. Returns its id. Continues if the caller
    /// is dropped.
    ///
    /// # Errors
    /// [`Error::BadField`], [`Error::TooMany`], [`Error::Key`], [`Error::Store`].
    pub async fn create(
        &self,
        tenant: &str,
        spec: NewWebhook,
        answer: Option<NewAnswer>,
    ) -> Result<String, Error> {
        let inner = Arc::clone(&self.inner);
        let tenant = tenant.to_owned();
        to_the_end(async move { inner.create(tenant, spec, answer).await }).await
    }

    /// Changes a webhook. Continues if the caller is dropped.
    ///
    /// # Errors
    /// [`Error::NoWebhook`], [`Error::BadField`], [`Error::Store`].
    pub async fn update(
        &self,
        tenant: &str,
        id: &str,
        change: WebhookChange,
    ) -> Result<WebhookInfo, Error> {
        let inner = Arc::clone(&self.inner);
        let name = WebhookName { tenant: tenant.to_owned(), id: id.to_owned() };
        to_the_end(async move {
            let addresses = inner.shared.settings.addresses.clone();
            inner.change(&name, |record| record.changed(change, &addresses)).await?;
            inner.with(&name.tenant, &name.id, |name, entry| entry.info(name))
        })
        .await
    }

    /// Gives a webhook another secret and returns it. The one before signs for another day. Continues if
    /// the caller is dropped.
    ///
    /// # Errors
    /// [`Error::NoWebhook`], [`Error::Key`], [`Error::Store`].
    pub async fn rotate(&self, tenant: &str, id: &str) -> Result<(WebhookInfo, String), Error> {
        let inner = Arc::clone(&self.inner);
        let name = WebhookName { tenant: tenant.to_owned(), id: id.to_owned() };
        to_the_end(async move {
            let key = inner.key_fingerprint().await?;
            let version = inner.change(&name, |record| Ok(record.rotated(key, now_ms()))).await?;
            let info = inner.with(&name.tenant, &name.id, |name, entry| entry.info(name))?;
            Ok((info, inner.secret(&name, version)?))
        })
        .await
    }

    /// The first secret of a webhook that was just created.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn first_secret(&self, tenant: &str, id: &str) -> Result<String, Error> {
        let name = WebhookName { tenant: tenant.to_owned(), id: id.to_owned() };
        self.inner.secret(&name, 1)
    }

    /// Deletes a webhook. An attempt in progress ends. Continues if the caller is dropped.
    ///
    /// # Errors
    /// [`Error::NoWebhook`], [`Error::Store`].
    pub async fn remove(&self, tenant: &str, id: &str) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        let name = WebhookName { tenant: tenant.to_owned(), id: id.to_owned() };
        to_the_end(async move {
            let _changing = inner.changing.lock().await;
            inner.with(&name.tenant, &name.id, |_, _| ())?;
            if let Some(fleet) = &inner.fleet {
                fleet.remove(&name.tenant, &name.id).await.map_err(Error::Fleet)?;
            } else {
                inner.shared.store.remove_webhook(&name.tenant, &name.id).await?;
            }
            inner.sync().await
        })
        .await
    }

    /// Sends a `webhook.test` event now, also if the webhook is disabled, and waits for the answer.
    ///
    /// # Errors
    /// [`Error::NoWebhook`], [`Error::Busy`], [`Error::Key`].
    pub async fn test(&self, tenant: &str, id: &str) -> Result<TestResult, Error> {
        let shared = &self.inner.shared;
        let name = WebhookName { tenant: tenant.to_owned(), id: id.to_owned() };
        let (record, testing) =
            self.inner.with(tenant, id, |_, entry| (entry.record(), Arc::clone(&entry.testing)))?;
        let busy = || Error::Busy(id.to_owned());
        let _one = testing.try_acquire().map_err(|_| busy())?;
        self.inner.key_fingerprint().await?;
        let signer = Signer::of(shared.key()?, &record).ok_or_else(|| Error::Key {
            path: shared.settings.key.path().to_owned(),
            reason: "it is not the one that the secret was derived from; rotate the secret"
                .to_owned(),
        })?;
        let slot = timeout(ATTEMPT, shared.slots.take(tenant)).await;
        let Ok(Some(_slot)) = slot else { return Err(busy()) };
        let message = Message::test(random("test_")?, tenant, id, now_ms());
        Ok(shared.send(&name, &record, &signer, &message).await)
    }

    /// Sets the gauges of the metrics.
    pub fn sample_metrics(&self) {
        let entries = self.inner.entries();
        let mut enabled = 0;
        let mut pending = 0;
        for (name, entry) in entries.iter() {
            let info = entry.info(name);
            enabled += usize::from(info.enabled && info.progress.disabled.is_none());
            pending += info.pending;
        }
        self.inner.shared.metrics.set(enabled, entries.len() - enabled, pending);
    }

    /// Ends all deliveries. An event whose answer was not recorded is sent again by the next server.
    pub fn stop(&self) {
        let following = self.inner.following.lock().unwrap_or_else(PoisonError::into_inner).take();
        following.inspect(AbortHandle::abort);
        self.inner.entries().clear();
    }
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<WebhookName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        tenant: &str,
        id: &str,
        read: impl FnOnce(&WebhookName, &Entry) -> T,
    ) -> Result<T, Error> {
        let name = WebhookName { tenant: tenant.to_owned(), id: id.to_owned() };
        let entries = self.entries();
        let found = entries.get_key_value(&name).ok_or(Error::NoWebhook(name.id))?;
        Ok(read(found.0, found.1))
    }

    /// Makes the webhooks equal to the records of this server.
    async fn sync(&self) -> Result<(), Error> {
        let _syncing = self.syncing.lock().await;
        let rows = self.shared.store.webhooks().await?;
        let mut entries = self.entries();
        let mut recorded = BTreeSet::new();
        for row in rows {
            let WebhookRow { tenant, id, body, progress } = row;
            let name = WebhookName { tenant, id };
            recorded.insert(name.clone());
            let record: WebhookRecord = match serde_json::from_str(&body) {
                Ok(record) => record,
                Err(error) => {
                    let WebhookName { tenant, id } = &name;
                    error!(tenant, webhook = id, %error, "a webhook cannot be read");
                    continue;
                }
            };
            match entries.get(&name) {
                Some(entry) if entry.record() == record => {}
                Some(entry) => entry.set(record),
                None => {
                    let progress = progress.and_then(|text| serde_json::from_str(&text).ok());
                    let shared = Arc::clone(&self.shared);
                    let entry = Entry::start(shared, name.clone(), record, progress);
                    entries.insert(name, entry);
                }
            }
        }
        entries.retain(|name, _| recorded.contains(name));
        Ok(())
    }

    async fn key_fingerprint(&self) -> Result<String, Error> {
        if self.fleet.is_some() && self.shared.settings.key.is_own() {
            return Err(Error::NoSharedKey);
        }
        let shared = Arc::clone(&self.shared);
        let key = tokio::task::spawn_blocking(move || shared.key()).await;
        Ok(key.map_err(|error| Error::Store(error.to_string()))??.fingerprint())
    }

    fn secret(&self, name: &WebhookName, version: u32) -> Result<String, Error> {
        Ok(self.shared.key()?.secret(&name.tenant, &name.id, version).shown())
    }

    async fn create(
        &self,
        tenant: String,
        spec: NewWebhook,
        answer: Option<NewAnswer>,
    ) -> Result<String, Error> {
        let shared = &self.shared;
        let key = self.key_fingerprint().await?;
        let now = now_ms();
        let record = WebhookRecord::new(spec, &shared.settings.addresses, key, now)?;
        let _changing = self.changing.lock().await;
        // Entries that are queued now are older than the webhook.
        shared.audit.flush().await;
        let mut follower = shared.audit.follow(&tenant);
        let bounds = timeout(LOG_WAIT, follower.bounds()).await;
        let bounds =
            bounds.map_err(|_| Error::Store("the audit log does not open".to_owned()))??;
        let position = AuditPosition { seq: bounds.last, mark: bounds.mark, ts: rfc3339(now) };
        let progress = Progress { position, ..Progress::default() };
        let id = random("wh_")?;
        let row = WebhookRow {
            tenant: tenant.clone(),
            id: id.clone(),
            body: json(&record)?,
            progress: Some(json(&progress)?),
        };
        let answer = answer.map(|NewAnswer { key, body }| StoredAnswer {
            tenant: tenant.clone(),
            key,
            body,
            answer: id.clone(),
        });
        let Some(fleet) = &self.fleet else {
            if !shared.store.insert_webhook(row, WEBHOOKS_MAX, answer).await? {
                return Err(Error::TooMany(WEBHOOKS_MAX));
            }
            self.sync().await?;
            return Ok(id);
        };
        match fleet.put(&tenant, &id, &row.body).await.map_err(Error::Fleet)? {
            PutOutcome::TooMany { max } => return Err(Error::TooMany(max)),
            PutOutcome::Written => {}
        }
        if let Some(answer) = answer {
            shared.store.insert_answer(answer).await?;
        }
        self.sync().await?;
        Ok(id)
    }

    /// Changes a record. Returns the version of its secret.
    async fn change(
        &self,
        name: &WebhookName,
        change: impl FnOnce(&WebhookRecord) -> Result<WebhookRecord, Error>,
    ) -> Result<u32, Error> {
        let _changing = self.changing.lock().await;
        let old = self.with(&name.tenant, &name.id, |_, entry| entry.record())?;
        let record = change(&old)?;
        let body = json(&record)?;
        if let Some(fleet) = &self.fleet {
            let from = json(&old)?;
            match fleet.replace(&name.tenant, &name.id, &from, &body).await.map_err(Error::Fleet)? {
                ReplaceOutcome::Written => {}
                ReplaceOutcome::Missing => return Err(Error::NoWebhook(name.id.clone())),
                ReplaceOutcome::Differs => {
                    let reason = "another node has just changed this webhook; nothing was changed";
                    return Err(Error::Fleet(reason.to_owned()));
                }
            }
        } else if !self.shared.store.update_webhook(&name.tenant, &name.id, body).await? {
            return Err(Error::NoWebhook(name.id.clone()));
        }
        let version = record.secret.version;
        self.with(&name.tenant, &name.id, |_, entry| entry.set(record))?;
        Ok(version)
    }
}

/// Takes changes of the fleet until the webhooks are closed.
async fn follow(inner: Weak<Inner>, mut changes: tokio::sync::watch::Receiver<i64>) {
    while changes.changed().await.is_ok() {
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = inner.sync().await {
            warn!(%error, "cannot read the webhooks of the fleet; trying again at the next change");
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Store(error.to_string()))
}

/// A random id.
fn random(prefix: &str) -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Store(error.to_string()))?;
    Ok(format!("{prefix}{}", hex::encode(bytes)))
}

/// Runs work to its end, also if the caller is dropped.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work).await.map_err(|error| Error::Store(error.to_string()))?
}
