//! A webhook with its task.

use super::WebhookInfo;
use crate::delivery::shared::{Shared, WebhookName};
use crate::delivery::worker::{SharedProgress, Worker};
use crate::model::progress::Progress;
use crate::model::record::WebhookRecord;
use isolet_clock::now_ms;
use isolet_store::audit::Follower;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

/// A webhook with its task, which ends when this is dropped.
pub(super) struct Entry {
    record: watch::Sender<WebhookRecord>,
    progress: SharedProgress,
    /// Knows the end of the tenant's log.
    log: Follower,
    /// One test at a time.
    pub(super) testing: Arc<Semaphore>,
    task: AbortHandle,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Entry {
    pub(super) fn start(
        shared: Arc<Shared>,
        name: WebhookName,
        record: WebhookRecord,
        progress: Option<Progress>,
    ) -> Self {
        let log = shared.audit.follow(&name.tenant);
        let follower = shared.audit.follow(&name.tenant);
        let begins_at_ms = progress.is_none().then_some(record.created_at_ms);
        let (record, changes) = watch::channel(record);
        let progress = SharedProgress::new(progress.unwrap_or_default());
        let worker = Worker {
            shared,
            name,
            record: changes,
            progress: progress.clone(),
            follower,
            waiting: VecDeque::new(),
            gap: None,
            skipped: 0,
            begins_at_ms,
        };
        let task = tokio::spawn(worker.run()).abort_handle();
        Self { record, progress, log, testing: Arc::new(Semaphore::new(1)), task }
    }

    pub(super) fn record(&self) -> WebhookRecord {
        self.record.borrow().clone()
    }

    pub(super) fn set(&self, record: WebhookRecord) {
        // What clients read after the change belongs to it.
        self.progress.lock().adopt(&record);
        self.record.send_replace(record);
    }

    pub(super) fn info(&self, name: &WebhookName) -> WebhookInfo {
        let record = self.record();
        let progress = self.progress.get();
        let pending = self.log.last().saturating_sub(progress.position.seq);
        let until = record.previous.map(|previous| previous.until_ms);
        WebhookInfo {
            id: name.id.clone(),
            url: record.url.text().to_owned(),
            events: record.events.patterns().to_vec(),
            sandbox: record.sandbox,
            label: record.label,
            enabled: record.enabled,
            created_at_ms: record.created_at_ms,
            previous_secret_until_ms: until.filter(|until| *until > now_ms()),
            progress,
            pending,
        }
    }
}
