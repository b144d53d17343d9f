//! Records from which snapshots other nodes restore a sandbox, with the epoch at which this node owns it.

use crate::ownership_driver::{ACTIONS_AT_ONCE, OwnershipDriver, key};
use crate::store_class::discards::discard;
use crate::store_class::pushed::{PushedRecord, RecordedSnapshot, ends_at_ms};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use isolet_cluster::model::{Epoch, SandboxKey};
use isolet_cluster::ownership::OwnershipError;
use isolet_cluster::protocol::{Event, Phase};
use isolet_sandbox::ownership::{NotRecorded, RecordedFuture};
use isolet_sandbox::{
    LocalSandbox, OwnedId, PushedSnapshot, SandboxClass, SandboxId, SnapshotId, SnapshotRecords,
    TenantId,
};
use isolet_wire::node::NodeName;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tracing::warn;

/// How long the end of an outdated copy may take.
const END_WAIT: Duration = Duration::from_secs(30);
/// Why a copy is superseded although its epoch is the present one.
const EARLIER: &str = "the fleet has a later push of it than this server knows: the disk or the data \
                       directory of this node is an earlier one";
/// How often the owner of a sandbox is read again because it has changed.
const OWNERS_MAX: usize = 4;
/// The pause between two looks for its end.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The driver, as the service asks it.
pub(super) struct Records(pub(super) Arc<OwnershipDriver>);

impl SnapshotRecords for Records {
    fn pushed<'a>(
        &'a self,
        sandbox: &'a LocalSandbox,
        snapshot: &'a PushedSnapshot,
    ) -> RecordedFuture<'a, Vec<SnapshotId>> {
        Box::pin(async move { self.0.record_pushed(sandbox, snapshot).await })
    }

    fn departs<'a>(
        &'a self,
        sandbox: &'a LocalSandbox,
        description: &'a str,
    ) -> RecordedFuture<'a, ()> {
        Box::pin(async move { self.0.record_departure(sandbox, description).await })
    }

    fn check<'a>(&'a self, sandbox: &'a LocalSandbox) -> RecordedFuture<'a, ()> {
        Box::pin(async move { self.0.check_records(sandbox).await })
    }

    fn forgets<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        snapshot: &'a SnapshotId,
    ) -> RecordedFuture<'a, ()> {
        Box::pin(self.0.record_forgotten(tenant, sandbox, snapshot))
    }

    fn deleted<'a>(&'a self, sandbox: &'a LocalSandbox) -> RecordedFuture<'a, ()> {
        Box::pin(async move { self.0.record_deleted(sandbox).await })
    }
}

/// The epoch at which this node owns, or owned, a sandbox.
fn epoch_of(phase: Phase) -> Option<Epoch> {
    match phase {
        Phase::Absent => None,
        Phase::Claimed { epoch, .. }
        | Phase::Running { epoch, .. }
        | Phase::Suspended { epoch }
        | Phase::Superseded { epoch }
        | Phase::Stopping { epoch }
        | Phase::Released { epoch } => Some(epoch),
    }
}

impl OwnershipDriver {
    fn epoch(&self, sandbox: &LocalSandbox) -> Option<(SandboxKey, Epoch)> {
        let phase = self.table().phase(&sandbox.name)?;
        Some((key(sandbox)?, epoch_of(phase)?))
    }

    async fn record_pushed(
        &self,
        sandbox: &LocalSandbox,
        snapshot: &PushedSnapshot,
    ) -> Result<Vec<SnapshotId>, NotRecorded> {
        let unknown = || NotRecorded::Unavailable("its owner was not read yet".to_owned());
        let (key, epoch) = self.epoch(sandbox).ok_or_else(unknown)?;
        let _turn = self.recording.of(&key).await;
        let known = self.service.known_pushes(sandbox).await;
        let known = known.map_err(|error| NotRecorded::Unavailable(error.to_string()))?;
        let new = RecordedSnapshot {
            snapshot: snapshot.clone(),
            node: self.here.clone(),
            epoch,
            incarnation: sandbox.name.clone(),
            mark: None,
        };
        let fence = self.ownership.fence(&key, epoch);
        let written = PushedRecord::change(&self.ownership, &fence, |record| {
            let mut record = record.unwrap_or_default();
            let is_earlier = |known| record.has_unknown(epoch, &sandbox.name, known);
            if known.as_ref().is_some_and(is_earlier) {
                return None;
            }
            let unneeded = record.add(new.clone());
            Some((record, unneeded))
        });
        let written = written.await.map_err(|error| self.not_recorded(sandbox, epoch, &error))?;
        written.ok_or_else(|| {
            warn!(%sandbox, "{EARLIER}");
            self.table().learn(&sandbox.name, Event::Outdated { epoch });
            NotRecorded::Superseded(EARLIER.to_owned())
        })
    }

    /// Ends copies of sandboxes that are earlier than what this node has pushed of them: its disk, or its data
    /// directory, is an earlier one. Their files are kept as those of superseded ones, and the next request
    /// restores them. Called before anything is answered.
    ///
    /// # Errors
    /// The records cannot be read.
    pub(crate) async fn end_earlier(&self) -> Result<(), OwnershipError> {
        let mut all = self.service.local_sandboxes();
        all.retain(|one| one.class == SandboxClass::Store);
        let checks = all.into_iter().map(|sandbox| async move {
            let earlier = self.earlier_than_pushed(&sandbox).await?;
            Ok::<_, OwnershipError>(earlier.map(|epoch| (sandbox, epoch)))
        });
        let checked = stream::iter(checks).buffer_unordered(ACTIONS_AT_ONCE);
        let earlier: Vec<_> =
            checked.try_filter_map(|found| async move { Ok(found) }).try_collect().await?;
        for (sandbox, epoch) in earlier {
            warn!(%sandbox, "{EARLIER}");
            self.table().learn(&sandbox.name, Event::Outdated { epoch });
        }
        let suspended = self.table().begin_suspensions();
        if !suspended.is_empty() {
            self.suspend(&suspended, &[]).await;
        }
        Ok(())
    }

    /// The epoch at which a later push of a sandbox is recorded that this server does not know.
    async fn earlier_than_pushed(
        &self,
        sandbox: &LocalSandbox,
    ) -> Result<Option<Epoch>, OwnershipError> {
        let Some((key, epoch)) = self.epoch(sandbox) else { return Ok(None) };
        let known = match self.service.known_pushes(sandbox).await {
            Ok(Some(known)) => known,
            Ok(None) => return Ok(None),
            Err(error) => {
                warn!(%sandbox, %error, "what was pushed of it is compared when it is pushed again");
                return Ok(None);
            }
        };
        let record = match PushedRecord::read(&self.ownership, &key).await {
            // It concerns this sandbox only.
            Err(OwnershipError::Unreadable { .. }) => None,
            read => read?,
        };
        let is_earlier = |record: &PushedRecord| record.has_unknown(epoch, &sandbox.name, &known);
        Ok(record.as_ref().is_some_and(is_earlier).then_some(epoch))
    }

    /// As of [`SnapshotRecords::forgets`]. Any node may own the sandbox: the epoch only says that the sandbox
    /// is the same.
    async fn record_forgotten(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<(), NotRecorded> {
        let Some(key) = crate::sandbox_key::key(tenant, sandbox) else { return Ok(()) };
        let unavailable = |error: OwnershipError| NotRecorded::Unavailable(error.to_string());
        for _ in 0..OWNERS_MAX {
            let owner = self.ownership.owner_in_etcd(&key).await.map_err(unavailable)?;
            let Some(owner) = owner else { return Ok(()) };
            let fence = self.ownership.fence(&key, owner.epoch);
            let written = PushedRecord::change(&self.ownership, &fence, |record| {
                let mut record = record?;
                record.forget(snapshot).then_some((record, ()))
            });
            match written.await {
                Ok(_) => return Ok(()),
                Err(OwnershipError::Stale { .. }) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(NotRecorded::Unavailable("its owner changes too quickly".to_owned()))
    }

    async fn check_records(&self, sandbox: &LocalSandbox) -> Result<(), NotRecorded> {
        if self.epoch(sandbox).is_none() {
            // One of the class `node` is followed within a second of its creation.
            let _ = self.own(sandbox).await;
        }
        let unknown = || NotRecorded::Unavailable("its owner was not read yet".to_owned());
        let (key, epoch) = self.epoch(sandbox).ok_or_else(unknown)?;
        let checked = self.ownership.check(&self.ownership.fence(&key, epoch)).await;
        checked.map(drop).map_err(|error| self.not_recorded(sandbox, epoch, &error))
    }

    async fn record_departure(
        &self,
        sandbox: &LocalSandbox,
        description: &str,
    ) -> Result<(), NotRecorded> {
        let unknown = || NotRecorded::Unavailable("its owner was not read yet".to_owned());
        let (key, epoch) = self.epoch(sandbox).ok_or_else(unknown)?;
        let _turn = self.recording.of(&key).await;
        let id = OwnedId { tenant: sandbox.tenant.clone(), id: sandbox.id.clone() };
        let ends_at_ms = ends_at_ms(&self.service, &id, description.as_bytes());
        let fence = self.ownership.fence(&key, epoch);
        let written = PushedRecord::change(&self.ownership, &fence, |record| {
            let mut record = record?;
            record.is_final = true;
            record.description = Some(description.to_owned());
            record.ends_at_ms = ends_at_ms;
            record.destination = self.destination(&key);
            Some((record, ()))
        });
        match written.await {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(NotRecorded::Unavailable("no snapshot of it is recorded".to_owned())),
            Err(error) => Err(self.not_recorded(sandbox, epoch, &error)),
        }
    }

    fn destination(&self, key: &SandboxKey) -> Option<NodeName> {
        let all = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).cloned()
    }

    /// Names the node to which a sandbox is moved, or none any more.
    pub(crate) fn set_destination(&self, key: &SandboxKey, node: Option<NodeName>) {
        let mut all = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
        match node {
            Some(node) => drop(all.insert(key.clone(), node)),
            None => drop(all.remove(key)),
        }
    }

    /// Lets other nodes take a sandbox over that has left this one. Returns whether they can.
    pub(crate) async fn store_away(&self, sandbox: &LocalSandbox) -> bool {
        let Some(key) = key(sandbox) else { return false };
        let away = async {
            loop {
                self.table().learn(&sandbox.name, Event::Delete);
                self.drain(&sandbox.name).await;
                match self.table().phase(&sandbox.name) {
                    // The task that follows all sandboxes may be performing its actions.
                    Some(Phase::Stopping { .. } | Phase::Released { .. }) => {}
                    _ => return,
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        if tokio::time::timeout(END_WAIT, away).await.is_err() {
            warn!(%sandbox, "it has left this node, and the fleet does not know it yet");
        }
        let owner = self.ownership.owner_in_etcd(&key).await;
        owner.is_ok_and(|owner| owner.is_some_and(|owner| owner.is_stored()))
    }

    async fn record_deleted(&self, sandbox: &LocalSandbox) -> Result<(), NotRecorded> {
        // One that this node has never owned was never pushed.
        let Some((key, epoch)) = self.epoch(sandbox) else { return Ok(()) };
        let _turn = self.recording.of(&key).await;
        let fence = self.ownership.fence(&key, epoch);
        let written = PushedRecord::change(&self.ownership, &fence, |record| {
            let mut record = record?;
            record.delete_sandbox(&sandbox.name);
            Some((record, ()))
        });
        written.await.map(drop).map_err(|error| self.not_recorded(sandbox, epoch, &error))
    }

    /// Deletes what this node has pushed of a superseded sandbox, and could not record any more. If the
    /// fleet has no record of the sandbox at all, everything is kept.
    pub(super) fn discard_unrecorded(&self, sandbox: &LocalSandbox) {
        let service = self.service.clone();
        let ownership = self.ownership.clone();
        let sandbox = sandbox.clone();
        tokio::spawn(async move {
            let mut own = service.scheduled_snapshots(&sandbox);
            let Some(key) = key(&sandbox).filter(|_| !own.is_empty()) else { return };
            match PushedRecord::read(&ownership, &key).await {
                Ok(Some(recorded)) => {
                    let recorded: Vec<_> = recorded.automatic().collect();
                    own.retain(|id| !recorded.contains(id));
                    discard(&service, &sandbox.tenant, own);
                }
                // Not even the owner before had one: etcd may have lost its data, and these may be all
                // that is left of the sandbox.
                Ok(None) => {
                    warn!(%sandbox, snapshots = ?own, "the fleet has no record of its snapshots in the object store; they stay there");
                }
                Err(error) => warn!(%sandbox, %error, "what it pushed last stays in the store"),
            }
        });
    }

    /// A write that was refused because of its epoch is also the news that another node owns the
    /// sandbox.
    fn not_recorded(
        &self,
        sandbox: &LocalSandbox,
        epoch: Epoch,
        error: &OwnershipError,
    ) -> NotRecorded {
        let reason = error.to_string();
        if !matches!(error, OwnershipError::Stale { .. }) {
            return NotRecorded::Unavailable(reason);
        }
        warn!(%sandbox, reason, "a write with the epoch of this node was refused");
        self.table().learn(&sandbox.name, Event::Outdated { epoch });
        NotRecorded::Superseded(reason)
    }

    /// Ends a copy of a sandbox that another node has owned since. Returns whether nothing of it is
    /// left.
    pub(crate) async fn end_outdated(&self, sandbox: &LocalSandbox) -> bool {
        if let Some((_, epoch)) = self.epoch(sandbox) {
            self.table().learn(&sandbox.name, Event::Outdated { epoch });
            self.drain(&sandbox.name).await;
        } else if let Err(error) = self.service.end_superseded(sandbox).await {
            warn!(%sandbox, %error, "not ended yet, although another node has owned it");
        }
        let gone = async {
            while self.service.exists(sandbox) {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        tokio::time::timeout(END_WAIT, gone).await.is_ok()
    }
}
