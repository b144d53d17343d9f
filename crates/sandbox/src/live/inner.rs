//! The state that all sandboxes of this server share. It has one field for each subsystem.

use crate::agent_client::pool::Watched;
use crate::live::disk_quota::DiskQuotas;
use crate::live::egress::Egress;
use crate::live::entry::file_journals::JournalMemory;
use crate::live::idempotency::IdempotencyStore;
use crate::live::launch_queue::Launch;
use crate::live::launch_queue::permits::Ownership;
use crate::live::registry::Registry;
use crate::live::snapshot_store::SnapshotStore;
use crate::live::snapshots::Snapshots;
use crate::live::space::Space;
use crate::live::warm_pool::pool::WarmPool;
use crate::model::config::Config;
use crate::model::error::Error;
use crate::model::events::Events;
use isolet_metrics::Metrics;
use isolet_store::Store;
use isolet_store::audit::Audit;
use isolet_store::keys::Keys;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The state that all parts of the service share. More than 12 fields: each is one part with a lock
/// of its own.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) jail: isolet_jail::Config,
    pub(crate) store: Store,
    pub(crate) keys: Keys,
    pub(crate) audit: Audit,
    pub(crate) launch: Launch,
    pub(crate) egress: Egress,
    pub(crate) registry: Registry,
    pub(crate) ownership: Ownership,
    pub(crate) images: isolet_image::Images,
    pub(crate) ready: WarmPool,
    pub(crate) idempotency: IdempotencyStore,
    pub(crate) watched: Arc<Watched>,
    pub(crate) events: Events,
    /// Notified when something was moved to the trash.
    pub(crate) trash: Arc<Notify>,
    pub(crate) snapshots: Snapshots,
    pub(crate) snapshot_store: Arc<SnapshotStore>,
    pub(crate) space: Arc<Space>,
    pub(crate) metrics: Arc<Metrics>,
    /// The journals of files of all sandboxes.
    pub(crate) journal_memory: JournalMemory,
    pub(crate) quotas: Arc<DiskQuotas>,
    pub(crate) stopping: AtomicBool,
    /// The drivers and the background tasks.
    pub(crate) tasks: Mutex<JoinSet<()>>,
    /// Locks the data directory as long as this server lives.
    pub(crate) _lock: std::fs::File,
}

impl Inner {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    pub(crate) fn running(&self) -> Result<(), Error> {
        if self.stopping.load(Ordering::Relaxed) { Err(Error::Stopping) } else { Ok(()) }
    }
}
