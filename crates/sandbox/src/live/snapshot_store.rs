//! The object store with copies of snapshots, and the pushes and pulls that run.

use crate::live::snapshots::push_watch::PushWatch;
use crate::model::error::Error;
use crate::model::ids::{SnapshotId, TenantId};
use crate::model::record::snapshot::SnapshotInfo;
use isolet_repository::{Progress, Repository, StoreSettings};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// How many pushes and pulls of all tenants run at the same time. One of them takes up to 150 MiB of
/// memory, and the index of its tenant. A tenant runs one, so that pushes of a sandbox are recorded in their
/// order; others of it wait.
const RUNNING_MAX: usize = 3;
/// How many sandboxes are restored at the same time; others wait.
const RESTORING_MAX: usize = 4;
/// Maximum number of pushes and pulls of one tenant that run or wait.
const WAITING_MAX: usize = 16;

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Push,
    Pull,
}

/// What a push or pull did.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferEnd {
    /// The snapshot.
    pub snapshot: SnapshotInfo,
    /// What was sent to the store or received from it, in bytes.
    pub transferred_bytes: u64,
    /// Whether the snapshot was there before, so that nothing was done.
    pub existed: bool,
    /// Sockets and devices, which were not pushed.
    pub left_out: u64,
}

/// A push or pull that runs, for all clients that wait for it.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Its progress.
    pub progress: watch::Receiver<Progress>,
    /// Its result; `None` while it runs.
    pub end: watch::Receiver<Option<Result<TransferEnd, Error>>>,
}

impl Transfer {
    /// Waits for the end.
    ///
    /// # Errors
    /// Those of the transfer.
    pub async fn ended(&mut self) -> Result<TransferEnd, Error> {
        let fault = || Error::Fault("the task of the transfer failed".to_owned());
        let end = self.end.wait_for(Option::is_some).await.map_err(|_| fault())?.clone();
        end.ok_or_else(fault)?
    }
}

type Key = (TenantId, SnapshotId, Direction);

/// The object store.
pub(crate) struct SnapshotStore {
    settings: Option<StoreSettings>,
    /// The repository, once a call has opened it.
    repository: tokio::sync::Mutex<Option<Repository>>,
    running: Semaphore,
    /// A place for each restore of a sandbox. Apart, because requests wait for them.
    restoring: Semaphore,
    /// How pushes of the server's own account go.
    pub(crate) pushes: PushWatch,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    transfers: HashMap<Key, Transfer>,
    /// A tenant's place to run, while it has transfers.
    turns: HashMap<TenantId, Arc<Semaphore>>,
}

impl SnapshotStore {
    pub(crate) fn new(settings: Option<StoreSettings>) -> Self {
        Self {
            settings,
            repository: tokio::sync::Mutex::default(),
            running: Semaphore::new(RUNNING_MAX),
            restoring: Semaphore::new(RESTORING_MAX),
            pushes: PushWatch::default(),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses calls without a store.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.settings.is_some() { Ok(()) } else { Err(Error::NoStore) }
    }

    /// The repository. The first call reads its header.
    pub(crate) async fn repository(&self) -> Result<Repository, isolet_repository::Error> {
        let Some(settings) = &self.settings else {
            return Err(isolet_repository::Error::Settings("there is no store".to_owned()));
        };
        let mut repository = self.repository.lock().await;
        if let Some(open) = &*repository {
            return Ok(open.clone());
        }
        Ok(repository.insert(Repository::open(settings).await?).clone())
    }

    /// Has the next transfers read all index objects from the store.
    pub(crate) async fn forget_indexes(&self) {
        if let Some(open) = &*self.repository.lock().await {
            open.forget_indexes();
        }
    }

    /// Waits for a place to restore a sandbox; `None` never happens, because the semaphore stays open.
    pub(crate) async fn restores(&self) -> Option<SemaphorePermit<'_>> {
        self.restoring.acquire().await.ok()
    }

    /// The transfer of this snapshot that runs.
    pub(crate) fn find(&self, key: &Key) -> Option<Transfer> {
        self.lock().transfers.get(key).cloned()
    }

    /// Starts a transfer, or joins the one that runs. It continues if its clients disconnect.
    pub(crate) fn start<F>(
        self: &Arc<Self>,
        key: Key,
        work: impl FnOnce(watch::Sender<Progress>) -> F + Send + 'static,
    ) -> Result<Transfer, Error>
    where
        F: Future<Output = Result<TransferEnd, Error>> + Send + 'static,
    {
        let mut state = self.lock();
        if let Some(transfer) = state.transfers.get(&key) {
            return Ok(transfer.clone());
        }
        let own = state.transfers.keys().filter(|one| one.0 == key.0).count();
        if own >= WAITING_MAX {
            return Err(Error::TooManyTransfers { max: WAITING_MAX });
        }
        let (progress_sender, progress) = watch::channel(Progress::default());
        let (end_sender, end) = watch::channel(None);
        let transfer = Transfer { progress, end };
        state.transfers.insert(key.clone(), transfer.clone());
        let turn = state.turns.entry(key.0.clone()).or_insert_with(|| Arc::new(Semaphore::new(1)));
        let turn = Arc::clone(turn);
        drop(state);
        let registration = Registration { store: Arc::clone(self), key };
        tokio::spawn(async move {
            let ended = {
                let _turn = turn.acquire().await;
                let _running = registration.store.running.acquire().await;
                work(progress_sender).await
            };
            // Before its end is known, so that the next call starts a new one.
            drop(registration);
            end_sender.send_replace(Some(ended));
        });
        Ok(transfer)
    }
}

/// A transfer in the list of those that run.
struct Registration {
    store: Arc<SnapshotStore>,
    key: Key,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        state.transfers.remove(&self.key);
        if !state.transfers.keys().any(|one| one.0 == self.key.0) {
            state.turns.remove(&self.key.0);
        }
    }
}
