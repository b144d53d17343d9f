//! Restores sandboxes that this node owns and does not have: of the class `store` after a takeover, of any
//! class after a move, and after a restore that did not end.
//!
//! At most one restore of a sandbox is under way; all requests for the sandbox wait for it, and none
//! reaches a handler before it has ended, which could create an empty sandbox with the same id. A
//! record of ownership with a snapshot in the store is given up only when the sandbox was deleted.
//!
//! A restore uses the snapshot that the record in etcd names as the newest, or fails. It never chooses an older
//! one: the tenant can, with `POST /v1/sandboxes/{id}/restore`.

use crate::error::unavailable;
use crate::ownership_driver::OwnershipDriver;
use crate::sandbox_key::key;
use crate::store_class::discards::{self, AT_ONCE};
use crate::store_class::pushed::{Base, PushedRecord};
use isolet_cluster::model::{Class, Custody, Epoch, Owner, SandboxKey};
use isolet_cluster::ownership::{Fence, Ownership, OwnershipError, TakenOver};
use isolet_http::fleet::{FleetError, Presence};
use isolet_sandbox::{
    CredentialSpec, RestoredFrom, SandboxId, Service, SnapshotId, StoredSandbox, TenantId,
};
use isolet_wire::node::NodeName;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};
use tracing::{info, warn};

/// How long a request waits for a restore: longer than a snapshot is read again that the store does not return,
/// so that the request learns why. The restore continues without the request.
const RESTORE_WAIT: Duration = Duration::from_secs(40);
/// Maximum number of remembered takeovers whose restore has not succeeded. When there are more, all are
/// forgotten, and their restores renew the epoch once more.
const TAKEN_MAX: usize = 10_000;
/// How long values of credentials wait for the sandbox that is moved here.
const GIVEN_WAIT: Duration = Duration::from_secs(15 * 60);
/// Why a node renews its own epoch.
const RENEWED: &str = "restored from the object store";

/// The end of a restore, for all requests that wait for it.
type Outcome = Result<Presence, FleetError>;

/// Restores the sandboxes of this node.
pub(crate) struct Restorer {
    service: Service,
    ownership: Ownership,
    here: NodeName,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: HashMap<SandboxKey, watch::Receiver<Option<Outcome>>>,
    /// Takeovers by this process of which nothing was restored yet. Other ownerships are renewed
    /// before a restore, so that a copy of an earlier data directory has an outdated epoch.
    taken: HashSet<(SandboxKey, Epoch)>,
    /// Values of credentials of sandboxes that are moved here, until they are restored.
    given: HashMap<SandboxKey, Given>,
    /// Sandboxes that this node is moving away. Requests for them wait for the end.
    moving: HashMap<SandboxKey, watch::Receiver<()>>,
}

/// Values of credentials, and when they came.
struct Given {
    at: Instant,
    credentials: Vec<CredentialSpec>,
}

/// A move of a sandbox to another node. Requests for the sandbox wait until it is dropped.
pub(crate) struct Moving {
    restorer: Arc<Restorer>,
    driver: Arc<OwnershipDriver>,
    key: SandboxKey,
    _end: watch::Sender<()>,
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.driver.set_destination(&self.key, None);
        self.restorer.lock().moving.remove(&self.key);
    }
}

impl Restorer {
    pub(crate) fn new(service: &Service, ownership: &Ownership, here: NodeName) -> Arc<Self> {
        Arc::new(Self {
            service: service.clone(),
            ownership: ownership.clone(),
            here,
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that this process has just taken a sandbox over.
    pub(crate) fn took_over(&self, sandbox: &SandboxKey, epoch: Epoch) {
        let mut state = self.lock();
        if state.taken.len() >= TAKEN_MAX {
            state.taken.clear();
        }
        state.taken.insert((sandbox.clone(), epoch));
    }

    /// Whether this node owns a sandbox that the object store has, as it knows, and does not have it.
    pub(crate) fn lacks(&self, tenant: &TenantId, sandbox: &SandboxId) -> bool {
        let Some(key) = key(tenant, sandbox) else { return false };
        if !self.service.has_sandbox(tenant, sandbox) {
            let owner = self.ownership.cached(&key);
            let in_store =
                |owner: Owner| owner.class == Class::Store || owner.custody != Custody::Held;
            return owner.is_some_and(in_store) || self.service.has_departed(tenant, sandbox);
        }
        let state = self.lock();
        // While it stands still before it leaves, its calls wait in the queue of its driver.
        let leaves = state.moving.contains_key(&key)
            && self.service.local_sandbox(tenant, sandbox).is_none();
        leaves || state.running.contains_key(&key)
    }

    /// Begins to move a sandbox to another node. `None`: it is being moved already.
    pub(crate) fn begin_move(
        self: &Arc<Self>,
        driver: &Arc<OwnershipDriver>,
        key: &SandboxKey,
        to: NodeName,
    ) -> Option<Moving> {
        let mut state = self.lock();
        if state.moving.contains_key(key) {
            return None;
        }
        let (_end, ended) = watch::channel(());
        state.moving.insert(key.clone(), ended);
        driver.set_destination(key, Some(to));
        let driver = Arc::clone(driver);
        Some(Moving { restorer: Arc::clone(self), driver, key: key.clone(), _end })
    }

    /// Remembers the values of credentials of a sandbox that is moved here.
    pub(crate) fn give(&self, key: &SandboxKey, credentials: Vec<CredentialSpec>) {
        let mut state = self.lock();
        state.given.retain(|_, given| given.at.elapsed() < GIVEN_WAIT);
        if state.given.len() >= TAKEN_MAX {
            state.given.clear();
        }
        if !credentials.is_empty() {
            state.given.insert(key.clone(), Given { at: Instant::now(), credentials });
        }
    }

    /// Waits while this node moves a sandbox away.
    async fn moved(&self, key: &SandboxKey, sandbox: &SandboxId) -> Result<(), FleetError> {
        let moving = self.lock().moving.get(key).cloned();
        let Some(mut moving) = moving else { return Ok(()) };
        // It resolves, with an error, when the sender is dropped.
        let ended = timeout(RESTORE_WAIT, moving.changed()).await;
        ended.map(drop).map_err(|_| FleetError::Restoring(sandbox.clone()))
    }

    /// Restores a sandbox, or waits for the restore that is under way. `called` is the snapshot for which the
    /// tenant calls: if the record names it, it is restored instead of a newer one.
    ///
    /// # Errors
    /// [`FleetError::Restoring`], [`FleetError::NotRestored`], [`FleetError::Unavailable`].
    pub(crate) async fn restore(
        self: &Arc<Self>,
        tenant: &TenantId,
        sandbox: &SandboxId,
        called: Option<&SnapshotId>,
    ) -> Outcome {
        let Some(key) = key(tenant, sandbox) else { return Ok(Presence::Here(None)) };
        self.moved(&key, sandbox).await?;
        let until = Instant::now() + RESTORE_WAIT;
        let (mut end, is_own) = self.join_or_start(&key, tenant, sandbox, called);
        let mut ended = wait(&mut end, until, sandbox).await;
        if !is_own && called.is_some() && matches!(ended, Err(FleetError::NotRestored { .. })) {
            // That was for another snapshot.
            (end, _) = self.join_or_start(&key, tenant, sandbox, called);
            ended = wait(&mut end, until, sandbox).await;
        }
        ended
    }

    /// The end of the restore that is under way. Starts one if there is none: the second value says so.
    fn join_or_start(
        self: &Arc<Self>,
        key: &SandboxKey,
        tenant: &TenantId,
        sandbox: &SandboxId,
        called: Option<&SnapshotId>,
    ) -> (watch::Receiver<Option<Outcome>>, bool) {
        let mut state = self.lock();
        if let Some(running) = state.running.get(key) {
            return (running.clone(), false);
        }
        let (ended, end) = watch::channel(None);
        state.running.insert(key.clone(), end.clone());
        let registration = Registration { restorer: Arc::clone(self), key: key.clone() };
        let tenant = tenant.clone();
        let sandbox = sandbox.clone();
        let called = called.cloned();
        tokio::spawn(async move {
            let Registration { restorer, key } = &registration;
            let outcome = restorer.work(key, &tenant, &sandbox, called.as_ref()).await;
            drop(registration);
            ended.send_replace(Some(outcome));
        });
        (end, true)
    }

    async fn work(
        &self,
        key: &SandboxKey,
        tenant: &TenantId,
        sandbox: &SandboxId,
        called: Option<&SnapshotId>,
    ) -> Outcome {
        // It may have been restored, or created, since the caller looked.
        if self.service.has_sandbox(tenant, sandbox) {
            return Ok(Presence::Here(None));
        }
        let owner = self.ownership.owner_in_etcd(key).await;
        let owner = owner.map_err(|error| unavailable(&error))?;
        let is_here = |owner: &Owner| owner.node == self.here && !owner.is_stored();
        let Some(owner) = owner.filter(is_here) else {
            return Ok(Presence::NotOwner);
        };
        let stored = PushedRecord::read(&self.ownership, key).await;
        // Placed for a request that creates it.
        let Some(stored) = stored.map_err(|error| unavailable(&error))? else {
            self.service.returns(tenant, sandbox);
            return Ok(Presence::Here(None));
        };
        if stored.is_deleted {
            let left = discards::list(key, owner.epoch, &stored, AT_ONCE);
            let fence = discards::fence(&self.ownership, key, owner.epoch, left.as_ref());
            return match self.ownership.release(&fence).await {
                Ok(()) => {
                    self.service.returns(tenant, sandbox);
                    discards::begin(&self.service, &self.ownership, left);
                    Ok(Presence::NotOwner)
                }
                Err(OwnershipError::Stale { .. }) => Ok(Presence::NotOwner),
                Err(error) => Err(unavailable(&error)),
            };
        }
        let Some(owner) = self.renewed(key, owner).await? else { return Ok(Presence::NotOwner) };
        let restored = self.restore_recorded(key, &owner, tenant, sandbox, called).await?;
        self.lock().taken.remove(&(key.clone(), owner.epoch));
        Ok(Presence::Here(Some(Box::new(restored))))
    }

    /// The ownership with a new epoch, unless this process has just taken the sandbox over. `None`: it
    /// has another owner now.
    async fn renewed(&self, key: &SandboxKey, owner: Owner) -> Result<Option<Owner>, FleetError> {
        if self.lock().taken.contains(&(key.clone(), owner.epoch)) {
            return Ok(Some(owner));
        }
        let renewed = self.ownership.take_over(key, &owner, RENEWED).await;
        match renewed.map_err(|error| unavailable(&error))? {
            TakenOver::Won(owner) => {
                self.took_over(key, owner.epoch);
                Ok(Some(owner))
            }
            _ => Ok(None),
        }
    }

    /// Restores a sandbox from the newest snapshot of its record, or from the one for which its tenant calls.
    async fn restore_recorded(
        &self,
        key: &SandboxKey,
        owner: &Owner,
        tenant: &TenantId,
        sandbox: &SandboxId,
        called: Option<&SnapshotId>,
    ) -> Result<RestoredFrom, FleetError> {
        let fence = self.ownership.fence(key, owner.epoch);
        let begun = self.begin(&fence, called).await.map_err(|error| unavailable(&error))?;
        let not_restored =
            |reason: String| FleetError::NotRestored { sandbox: sandbox.clone(), reason };
        let Some(Begun { whole, skipped }) = begun else {
            return Err(not_restored("the record of its snapshots is gone".to_owned()));
        };
        let Some(one) = whole.restorable() else {
            self.undo(&fence, &whole, tenant, sandbox).await;
            return Err(not_restored(with_others(
                "all newer ones were deleted".to_owned(),
                &whole,
            )));
        };
        let given = {
            let state = self.lock();
            let given = state.given.get(key).filter(|given| given.at.elapsed() < GIVEN_WAIT);
            given.map(|given| given.credentials.clone()).unwrap_or_default()
        };
        let is_newest = whole.is_newest(&one.snapshot.id);
        let from = StoredSandbox {
            snapshot: one.snapshot.clone(),
            node: one.node.to_string(),
            has_run_since: !(whole.is_final && is_newest),
            credentials: given,
            skipped: whole.skipped_after(&one.snapshot.id),
        };
        if skipped > 0 {
            let snapshot = &one.snapshot.id;
            warn!(
                sandbox = %key,
                %snapshot,
                skipped,
                "its tenant has called for an older snapshot; the newer ones stay in the store"
            );
            self.service.metrics().fleet.skipped.inc_by(skipped);
        }
        match self.service.restore_stored(tenant, sandbox, from).await {
            Ok(restored) => {
                info!(sandbox = %key, epoch = %owner.epoch, snapshot = %restored.snapshot, "restored on this node");
                self.lock().given.remove(key);
                if owner.class == Class::Node {
                    self.end_move(key, owner.epoch, &whole).await;
                }
                Ok(restored)
            }
            Err(error) => {
                let snapshot = &one.snapshot.id;
                warn!(sandbox = %key, %snapshot, %error, "not restored");
                self.undo(&fence, &whole, tenant, sandbox).await;
                let text = error.to_string();
                let names_it = text.contains(snapshot.as_str());
                let reason = if names_it { text } else { format!("snapshot {snapshot}: {text}") };
                Err(not_restored(with_others(reason, &whole)))
            }
        }
    }

    /// Records that the sandbox may run from now on, and which snapshots its tenant skips. The end of its
    /// lifetime stays, for the sweep. Returns the record as it was, with the skipped ones.
    async fn begin(
        &self,
        fence: &Fence,
        called: Option<&SnapshotId>,
    ) -> Result<Option<Begun>, OwnershipError> {
        let begun = PushedRecord::change(&self.ownership, fence, |record| {
            let mut record = record?;
            let before = record.skipped().len();
            let is_called = called.is_some_and(|called| record.call_for(called));
            let skipped = record.skipped().len().saturating_sub(before) as u64;
            let whole = record.clone();
            let base = record.restorable().map(|one| one.snapshot.id.clone());
            record.base = base.map(|snapshot| Base { snapshot, epoch: fence.epoch() });
            record.is_final = false;
            record.description = None;
            record.destination = None;
            let begun = Begun { whole, skipped: if is_called { skipped } else { 0 } };
            Some((record, begun))
        });
        begun.await
    }

    /// Records that the sandbox has not run, after a restore that failed.
    async fn undo(
        &self,
        fence: &Fence,
        whole: &PushedRecord,
        tenant: &TenantId,
        sandbox: &SandboxId,
    ) {
        if !whole.is_final || self.service.has_sandbox(tenant, sandbox) {
            return;
        }
        let undone = PushedRecord::change(&self.ownership, fence, |record| {
            let mut record = record?;
            record.is_final = true;
            record.description.clone_from(&whole.description);
            record.destination.clone_from(&whole.destination);
            Some((record, ()))
        });
        if let Err(error) = undone.await {
            let sandbox = fence.sandbox();
            warn!(%sandbox, %error, "the next restore reports changes of which it cannot know");
        }
    }
}

/// A restore that has begun.
struct Begun {
    /// The record as it was, with the snapshots that the tenant skips.
    whole: PushedRecord,
    /// How many snapshots this restore has skipped.
    skipped: u64,
}

/// Waits for the end of a restore, which continues without the request.
async fn wait(
    end: &mut watch::Receiver<Option<Outcome>>,
    until: Instant,
    sandbox: &SandboxId,
) -> Outcome {
    let restoring = || FleetError::Restoring(sandbox.clone());
    let ended = timeout_at(until.into(), end.wait_for(Option::is_some)).await;
    let ended = ended.map_err(|_| restoring())?.map(|ended| ended.clone()).ok().flatten();
    ended.unwrap_or_else(|| Err(restoring()))
}

/// Why a sandbox is not restored, with the snapshots for which its tenant can call.
fn with_others(reason: String, record: &PushedRecord) -> String {
    let others: Vec<&str> = record.others().into_iter().map(SnapshotId::as_str).collect();
    match others.is_empty() {
        true => format!("{reason}; the store has no other snapshot of it"),
        false => format!("{reason}; other snapshots of it: {}", others.join(", ")),
    }
}

impl Restorer {
    /// Removes the snapshots with which a sandbox of the class `node` came. If that fails, they are
    /// removed with the sandbox.
    async fn end_move(&self, key: &SandboxKey, epoch: Epoch, stored: &PushedRecord) {
        let left = discards::list(key, epoch, stored, AT_ONCE);
        let fence = discards::fence(&self.ownership, key, epoch, left.as_ref());
        match PushedRecord::delete(&self.ownership, &fence).await {
            Ok(()) => discards::begin(&self.service, &self.ownership, left),
            Err(error) => {
                warn!(sandbox = %key, %error, "the snapshots with which it came stay in the store");
            }
        }
    }
}

/// A restore in the list of those that are under way.
struct Registration {
    restorer: Arc<Restorer>,
    key: SandboxKey,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.restorer.lock().running.remove(&self.key);
    }
}
