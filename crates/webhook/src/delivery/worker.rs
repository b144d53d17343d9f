//! The task of one webhook: takes events from the audit log and delivers them one after the other.
//!
//! ```text
//!   read entries behind the cursor ─► filter ─► send ─► 2xx: move the cursor, record it
//!        ▲                                       │
//!        └── wait for the log, or for a change   └─► failure: record it, wait, send again
//! ```

use crate::delivery::shared::{Shared, Signer, WebhookName};
use crate::error::Error;
use crate::model::message::Message;
use crate::model::progress::{DisabledReason, Progress};
use crate::model::record::WebhookRecord;
use isolet_clock::{now_ms, rfc3339};
use isolet_store::audit::{AuditEntry, AuditGap, AuditPosition, Followed, Follower, ReadEntry};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tracing::warn;

/// What clients see of an error of this server itself.
const FAULT: &str = "the server cannot deliver events now; its log says why";
/// The wait after such an error.
const FAULT_WAIT: Duration = Duration::from_secs(5);
/// After this many entries of no interest the cursor is recorded, so that it never falls behind the
/// beginning of the log.
const SKIPPED_MAX: u32 = 1000;

/// How far a webhook is, which its task changes and calls read.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedProgress(Arc<Mutex<Progress>>);

impl SharedProgress {
    pub(crate) fn new(progress: Progress) -> Self {
        Self(Arc::new(Mutex::new(progress)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Progress {
        self.lock().clone()
    }
}

/// The task of one webhook.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: WebhookName,
    pub(crate) record: watch::Receiver<WebhookRecord>,
    pub(crate) progress: SharedProgress,
    pub(crate) follower: Follower,
    /// Entries that were read and are behind the cursor.
    pub(crate) waiting: VecDeque<ReadEntry>,
    /// Entries that cannot be read; the receiver gets this first.
    pub(crate) gap: Option<AuditGap>,
    /// Entries of no interest since the cursor was last recorded.
    pub(crate) skipped: u32,
    /// The webhook has no cursor yet, because another node has created it: its events begin at this
    /// time, in ms since 1970.
    pub(crate) begins_at_ms: Option<i64>,
}

/// Why a step has ended.
enum Step {
    /// There is more to do.
    Again,
    /// The log has no more events.
    AtEnd,
    /// Nothing is sent until the owner changes the webhook.
    Stopped,
    /// This server cannot work on it now.
    Fault(Error),
}

impl Worker {
    /// Delivers events until the task is aborted.
    pub(crate) async fn run(mut self) {
        loop {
            let record = self.record.borrow_and_update().clone();
            let changed = match self.step(&record).await {
                Step::Again => continue,
                Step::Stopped => self.record.changed().await.is_ok(),
                Step::AtEnd => tokio::select! {
                    changed = self.record.changed() => changed.is_ok(),
                    log = self.follower.changed() => log.is_ok(),
                },
                Step::Fault(error) => {
                    let WebhookName { tenant, id } = &self.name;
                    warn!(tenant, webhook = id, %error, "cannot deliver events; trying again");
                    self.progress.lock().last_error = Some(FAULT.to_owned());
                    tokio::select! {
                        changed = self.record.changed() => changed.is_ok(),
                        () = tokio::time::sleep(FAULT_WAIT) => true,
                    }
                }
            };
            if !changed {
                return;
            }
        }
    }

    async fn step(&mut self, record: &WebhookRecord) -> Step {
        self.progress.lock().adopt(record);
        if !record.enabled || self.progress.lock().disabled.is_some() {
            return Step::Stopped;
        }
        let shared = Arc::clone(&self.shared);
        let key = match tokio::task::spawn_blocking(move || shared.key()).await {
            Ok(Ok(key)) => key,
            Ok(Err(error)) => return Step::Fault(error),
            Err(error) => return Step::Fault(Error::Store(error.to_string())),
        };
        let Some(signer) = Signer::of(key, record) else {
            self.disable(DisabledReason::KeyChanged).await;
            return Step::Stopped;
        };
        if let Some(begins_at_ms) = self.begins_at_ms {
            let begun = self.follower.at(&self.shared.audit, &rfc3339(begins_at_ms)).await;
            match begun {
                Ok(position) => self.progress.lock().position = position,
                Err(error) => return Step::Fault(error.into()),
            }
            self.begins_at_ms = None;
            self.store().await;
        }
        match self.next(record).await {
            Ok(Some(message)) => self.attempt(record, &signer, &message).await,
            Ok(None) => Step::AtEnd,
            Err(error) => Step::Fault(error),
        }
    }

    /// The next event; `None` at the end of the log. It stays the next one until it was delivered.
    async fn next(&mut self, record: &WebhookRecord) -> Result<Option<Message>, Error> {
        loop {
            let position = self.progress.lock().position.clone();
            let origin = self.shared.origin(&self.name);
            if let Some(gap) = &self.gap {
                return Ok(Some(Message::gap(gap, &position, origin, now_ms())));
            }
            if let Some(entry) = self.waiting.front() {
                if record.wants(entry) {
                    return Ok(Some(Message::of(entry, origin)));
                }
                let behind = entry.position();
                self.waiting.pop_front();
                self.skip(behind).await;
                continue;
            }
            match self.follower.after(&self.shared.audit, &position).await? {
                Followed::Entries(entries) if entries.is_empty() => return Ok(None),
                Followed::Entries(entries) => self.waiting = entries.into(),
                Followed::Gap(gap) => {
                    let WebhookName { tenant, id } = &self.name;
                    warn!(tenant, webhook = id, from = gap.from, to = gap.to,
                        reason = ?gap.reason, "a webhook misses entries of the audit log");
                    self.gap = Some(gap);
                }
            }
        }
    }

    async fn skip(&mut self, behind: AuditPosition) {
        self.progress.lock().position = behind;
        self.skipped += 1;
        if self.skipped >= SKIPPED_MAX {
            self.store().await;
        }
    }

    /// Sends an event once, at its time.
    async fn attempt(
        &mut self,
        record: &WebhookRecord,
        signer: &Signer,
        message: &Message,
    ) -> Step {
        if let Some(wait) = self.wait() {
            // The record may have changed, so everything is looked at again.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                changed = self.record.changed() => {
                    if changed.is_err() {
                        return Step::Stopped;
                    }
                }
            }
            return Step::Again;
        }
        let Some(slot) = self.shared.slots.take(&self.name.tenant).await else {
            return Step::Stopped;
        };
        let result = self.shared.send(&self.name, record, signer, message).await;
        drop(slot);
        let now = now_ms();
        let disabled = match (result.status, result.error) {
            (Some(status), None) => {
                self.taken(message, status, now);
                None
            }
            (status, error) => {
                let error = error.unwrap_or_default();
                let chance = random_share();
                let schedule = &self.shared.settings.retry;
                self.progress.lock().failed(status, error, schedule, chance, now)
            }
        };
        self.store().await;
        if let Some(reason) = disabled {
            self.report(reason);
        }
        Step::Again
    }

    /// The receiver has taken the message.
    fn taken(&mut self, message: &Message, status: u16, now: i64) {
        if self.gap.take().is_none() {
            self.waiting.pop_front();
        } else {
            self.waiting.clear();
        }
        if let Some(position) = message.position.clone() {
            self.progress.lock().succeeded(status, position, now);
        }
    }

    /// How long to wait before the next attempt; `None`: it is due. A clock that was set back does not
    /// lengthen the longest wait.
    fn wait(&self) -> Option<Duration> {
        let due = self.progress.lock().next_attempt_ms?;
        let left = u64::try_from(due.saturating_sub(now_ms())).ok().filter(|left| *left > 0)?;
        let longest = self.shared.settings.retry.wait(u32::MAX, 1.0);
        Some(Duration::from_millis(left).min(longest))
    }

    async fn disable(&mut self, reason: DisabledReason) {
        self.progress.lock().disable(reason, now_ms());
        self.store().await;
        self.report(reason);
    }

    /// Tells the operator and the tenant that nothing is sent any more.
    fn report(&self, reason: DisabledReason) {
        let WebhookName { tenant, id } = &self.name;
        warn!(tenant, webhook = id, ?reason, "a webhook is disabled");
        let reason = serde_json::to_value(reason).unwrap_or_default();
        let entry = AuditEntry::now(tenant, None, "webhook.disabled");
        let entry = entry.with("from", "server").with("webhook", id.as_str());
        self.shared.audit.put(entry.with("reason", reason));
    }

    /// Records the progress. A failure costs a repetition after a restart, and no event.
    async fn store(&mut self) {
        self.skipped = 0;
        let progress = self.progress.get();
        let WebhookName { tenant, id } = &self.name;
        let stored = match serde_json::to_string(&progress) {
            Ok(text) => self.shared.store.set_webhook_progress(tenant, id, text).await,
            Err(error) => Err(isolet_store::Error::Json(error.to_string())),
        };
        if let Err(error) = stored {
            warn!(tenant, webhook = id, %error, "cannot record which events were delivered");
        }
    }
}

/// A random number from 0 to 1.
fn random_share() -> f64 {
    let mut bytes = [0; 2];
    let _ = getrandom::fill(&mut bytes);
    f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX)
}
