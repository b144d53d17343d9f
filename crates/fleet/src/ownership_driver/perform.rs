//! Performs actions: records the view first, then calls the service or etcd.

use crate::ownership_driver::{ACTIONS_AT_ONCE, OwnershipDriver, key};
use crate::store_class::discards::{self, AT_ONCE};
use crate::store_class::pushed::{PushedRecord, note};
use futures_util::{StreamExt as _, stream};
use isolet_cluster::model::{Epoch, Owner, SandboxKey};
use isolet_cluster::ownership::OwnershipError;
use isolet_cluster::protocol::{Action, Event, Phase};
use isolet_sandbox::{Admission, LocalSandbox, OwnedId};
use std::time::Duration;
use tokio::time::timeout;
use tracing::{info, warn};

/// How long the end of a superseded sandbox may take. It continues in the background.
const END_WAIT: Duration = Duration::from_secs(30);

impl OwnershipDriver {
    /// Records what has changed and performs all actions that are due. What fails is done at the next
    /// tick.
    pub(super) async fn settle(&self) {
        if !self.record().await {
            return;
        }
        let suspended = self.table().begin_suspensions();
        if !suspended.is_empty() {
            self.suspend(&suspended, &[]).await;
        }
        self.compare_all().await;
        let names = self.table().with_work();
        stream::iter(names)
            .for_each_concurrent(ACTIONS_AT_ONCE, |name| async move { self.drain(&name).await })
            .await;
    }

    /// Performs the actions of one sandbox until none is left.
    pub(super) async fn drain(&self, name: &str) {
        while let Some(work) = { self.table().begin(name) } {
            if !self.record().await {
                return self.table().ended(name, None);
            }
            let Some(action) = work.action else { return self.forget(&work.sandbox).await };
            match action {
                Action::Suspend => self.suspend(std::slice::from_ref(&work.sandbox), &[]).await,
                Action::Compare { .. } => {
                    // Comparisons are answered together.
                    self.table().put_back(name, action);
                    return;
                }
                action => {
                    let learned = self.perform(&work.sandbox, action).await;
                    self.table().ended(name, learned);
                }
            }
        }
    }

    /// Records all views that have changed. Returns whether that succeeded.
    async fn record(&self) -> bool {
        let views = self.table().take_unrecorded();
        if views.is_empty() {
            return true;
        }
        match self.service.store_ownership(views.clone()).await {
            Ok(()) => true,
            Err(error) => {
                warn!(%error, "the ownership of sandboxes is not recorded; it is tried again");
                self.table().not_recorded(&views);
                false
            }
        }
    }

    /// Suspends sandboxes whose suspension has begun, and `busy` ones, with which something else is
    /// under way: their own suspensions follow.
    pub(super) async fn suspend(&self, sandboxes: &[LocalSandbox], busy: &[LocalSandbox]) {
        let all = [sandboxes, busy].concat();
        if let Err(error) = self.service.suspend(&all).await {
            warn!(%error, count = all.len(), "sandboxes are not suspended by the lease guard");
        }
        let mut table = self.table();
        sandboxes.iter().for_each(|one| table.ended(&one.name, None));
    }

    async fn perform(&self, sandbox: &LocalSandbox, action: Action) -> Option<Event> {
        match action {
            Action::Admit { epoch, registration } => self.admit(sandbox, epoch, registration).await,
            Action::End { epoch } => {
                match timeout(END_WAIT, self.service.end_superseded(sandbox)).await {
                    Ok(Ok(())) => {
                        self.discard_unrecorded(sandbox);
                        Some(Event::Ended { epoch })
                    }
                    Ok(Err(error)) => {
                        warn!(%sandbox, %error, "not ended yet, although another node owns it");
                        None
                    }
                    Err(_) => None,
                }
            }
            Action::Stop { epoch } => {
                // Its deletion ends it, also after a restart of the server.
                (!self.service.exists(sandbox)).then_some(Event::Stopped { epoch })
            }
            Action::Release { epoch } => self.release(sandbox, epoch).await,
            Action::Suspend | Action::Compare { .. } => None,
        }
    }

    async fn admit(
        &self,
        sandbox: &LocalSandbox,
        epoch: Epoch,
        registration: Epoch,
    ) -> Option<Event> {
        match self.service.admit(sandbox, registration).await {
            Ok(Admission::Admitted) => Some(Event::Admitted { epoch, registration }),
            Ok(Admission::Refused(reason)) => {
                info!(%sandbox, reason, "the lease guard does not let it run");
                Some(Event::NotAdmitted { epoch, registration })
            }
            Err(error) => {
                warn!(%sandbox, %error, "the lease guard cannot be asked; it is tried again");
                None
            }
        }
    }

    async fn release(&self, sandbox: &LocalSandbox, epoch: Epoch) -> Option<Event> {
        let released = Some(Event::Released { epoch });
        // A sandbox with the same id was created since, and continues the ownership.
        if self.service.has_sandbox(&sandbox.tenant, &sandbox.id) {
            return released;
        }
        let Some(key) = key(sandbox) else { return released };
        let stored = match PushedRecord::read(&self.ownership, &key).await {
            Ok(stored) => stored,
            Err(error) => {
                warn!(%sandbox, %error, "its ownership is not given up yet; it is tried again");
                return None;
            }
        };
        if let Some(stored) = stored.as_ref().filter(|stored| stored.names_any()) {
            let owner = match self.ownership.owner_in_etcd(&key).await {
                Ok(owner) => owner.filter(|owner| owner.epoch == epoch),
                Err(error) => {
                    warn!(%sandbox, %error, "its ownership is not given up yet; it is tried again");
                    return None;
                }
            };
            let Some(owner) = owner else { return Some(Event::Outdated { epoch }) };
            if stored.is_final {
                return self.put_away(sandbox, &key, &owner, stored).await;
            }
            // It is gone without a deletion, such as after a failed restore: the next request restores
            // it.
            if stored.keeps(&owner) {
                warn!(%sandbox, "gone, and not deleted: it can be restored from the object store");
                return released;
            }
        }
        let left = discards::list(&key, epoch, &stored.unwrap_or_default(), AT_ONCE);
        let fence = discards::fence(&self.ownership, &key, epoch, left.as_ref());
        match self.ownership.release(&fence).await {
            Ok(()) => {
                self.service.returns(&sandbox.tenant, &sandbox.id);
                discards::begin(&self.service, &self.ownership, left);
                released
            }
            Err(OwnershipError::Stale { .. }) => Some(Event::Outdated { epoch }),
            Err(error) => {
                warn!(%sandbox, %error, "its ownership is not given up yet; it is tried again");
                None
            }
        }
    }

    /// Lets any node take over a sandbox that has left this one.
    async fn put_away(
        &self,
        sandbox: &LocalSandbox,
        key: &SandboxKey,
        owner: &Owner,
        stored: &PushedRecord,
    ) -> Option<Event> {
        let epoch = owner.epoch;
        let fence = self.ownership.fence(key, epoch);
        let id = OwnedId { tenant: sandbox.tenant.clone(), id: sandbox.id.clone() };
        let note = note(&self.service, &id, stored, stored.destination.clone());
        match self.ownership.store_away(&fence, owner, note).await {
            Ok(()) => {
                info!(%sandbox, "stored away: any node can restore it from the object store");
                Some(Event::Released { epoch })
            }
            Err(OwnershipError::Stale { .. }) => Some(Event::Outdated { epoch }),
            Err(error) => {
                warn!(%sandbox, %error, "not stored away yet; it is tried again");
                None
            }
        }
    }

    /// Forgets a sandbox of which nothing is left.
    async fn forget(&self, sandbox: &LocalSandbox) {
        let forgotten = self.service.forget_ownership(&sandbox.name).await;
        let mut table = self.table();
        table.ended(&sandbox.name, None);
        match forgotten {
            Ok(()) if table.phase(&sandbox.name) == Some(Phase::Absent) => {
                table.forget(&sandbox.name);
            }
            Ok(()) => {}
            Err(error) => {
                warn!(%sandbox, %error, "the record of its ownership is not removed yet");
            }
        }
    }
}
