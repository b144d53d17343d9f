//! Gives up the ownership of sandboxes that were removed, or were not created.

use crate::node::Node;
use crate::release::Release;
use crate::sandbox_key::key;
use crate::store_class::discards;
use crate::store_class::pushed::PushedRecord;
use futures_util::{StreamExt, stream};
use isolet_cluster::model::{Epoch, SandboxKey};
use isolet_cluster::ownership::{Claimed, OwnershipError};
use isolet_sandbox::OwnedId;
use isolet_wire::node::NodeName;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::{error, warn};

/// Transactions that are under way at once.
const AT_ONCE: usize = 16;
/// The pause before another attempt while etcd does not answer.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Attempts. After them, the sandbox waits for a sweep.
const ATTEMPTS: usize = 5;

/// Gives up what is sent to the queue, until the task is aborted.
pub(crate) async fn work(node: Arc<Node>, queue: mpsc::Receiver<Release>) {
    let all = stream::unfold(queue, |mut queue| async move {
        let next = queue.recv().await?;
        Some((next, queue))
    });
    all.for_each_concurrent(AT_ONCE, |release| node.give_up(release)).await;
}

impl Node {
    /// Gives up, in the background, the ownership of a node that did not accept a sandbox. If too many
    /// wait, a sweep of that node does it.
    pub(crate) fn release_later(&self, sandbox: SandboxKey, epoch: Epoch, node: NodeName) {
        let _ = self.releases.try_send(Release::Unaccepted { sandbox, epoch, node });
    }

    async fn give_up(&self, release: Release) {
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            let done = match &release {
                Release::Unaccepted { sandbox, epoch, node } => {
                    self.give_up_unaccepted(sandbox, *epoch, node).await.map(drop)
                }
                Release::Absent(id) => self.settle_now(id).await,
                Release::Ended(id) => {
                    self.end_absent(id).await;
                    Ok(())
                }
            };
            match done {
                Ok(()) => return,
                Err(failure) => last = Some(failure),
            }
        }
        if let Some(failure) = last {
            warn!(error = %failure, "cannot give up a sandbox that does not exist; a sweep will");
        }
    }

    /// Gives up the ownership of a node for which a sandbox was placed, unless it has accepted it.
    /// Returns whether that node does not own it any more.
    ///
    /// # Errors
    /// The records cannot be written.
    pub(crate) async fn give_up_unaccepted(
        &self,
        sandbox: &SandboxKey,
        epoch: Epoch,
        node: &NodeName,
    ) -> Result<bool, OwnershipError> {
        let fence = self.ownership.fence(sandbox, epoch);
        match self.ownership.release_unaccepted(&fence, node).await {
            // Another node owns it now, or none does.
            Err(OwnershipError::Stale { .. }) => Ok(true),
            done => done,
        }
    }

    /// Gives up the ownership if there is no such sandbox, and claims it if there is one.
    ///
    /// # Errors
    /// The records cannot be read or written.
    pub(crate) async fn settle_now(&self, id: &OwnedId) -> Result<(), OwnershipError> {
        let Some(sandbox) = key(&id.tenant, &id.id) else { return Ok(()) };
        if self.service.has_sandbox(&id.tenant, &id.id) {
            return self.claim_again(&sandbox).await;
        }
        if self.service.is_creating(&id.tenant, &id.id) {
            // Its end is reported.
            return Ok(());
        }
        let owner = match self.ownership.cached(&sandbox) {
            Some(owner) => Some(owner),
            None => self.ownership.owner_in_etcd(&sandbox).await?,
        };
        let Some(owner) = owner.filter(|owner| self.owns(owner)) else { return Ok(()) };
        let stored = self.stored(&sandbox).await?;
        if stored.keeps(&owner) {
            return Ok(());
        }
        let left = discards::list(&sandbox, owner.epoch, &stored, discards::AT_ONCE);
        let fence = discards::fence(&self.ownership, &sandbox, owner.epoch, left.as_ref());
        match self.ownership.release(&fence).await {
            Ok(()) => {
                self.service.returns(&id.tenant, &id.id);
                discards::begin(&self.service, &self.ownership, left);
            }
            Err(OwnershipError::Stale { .. }) => {}
            Err(error) => return Err(error),
        }
        if self.service.has_sandbox(&id.tenant, &id.id) {
            // It began after the look above, and before the ownership was given up.
            self.claim_again(&sandbox).await?;
        }
        Ok(())
    }

    /// The snapshots of a sandbox in the object store. The ownership of one that this node lacks, and that
    /// can be restored, is not given up: the record of its snapshots would be lost with it.
    pub(crate) async fn stored(
        &self,
        sandbox: &SandboxKey,
    ) -> Result<PushedRecord, OwnershipError> {
        Ok(PushedRecord::read(&self.ownership, sandbox).await?.unwrap_or_default())
    }

    /// Claims a sandbox of this node, unless this node knows that it owns it.
    async fn claim_again(&self, sandbox: &SandboxKey) -> Result<(), OwnershipError> {
        if self.ownership.cached(sandbox).is_some_and(|owner| self.owns(&owner)) {
            return Ok(());
        }
        let reason = "created while the ownership of its id was given up";
        if let Claimed::Owned(other) = self.claim_here(sandbox, reason).await?
            && !self.owns(&other)
        {
            error!(
                %sandbox, owner = %other.node,
                "two nodes have a sandbox with this id; the one on this node is not reachable"
            );
        }
        Ok(())
    }
}
