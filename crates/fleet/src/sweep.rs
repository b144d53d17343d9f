//! Compares the records of ownership with the sandboxes of this server, at its start, after each new
//! registration, and every minute.
//!
//! | record | sandbox | what is done |
//! |---|---|---|
//! | of this node, of the class `store` | none, and a snapshot in the object store | nothing: the next request restores it |
//! | of this node, with a snapshot in the object store, and its lifetime is over | none | it is restored, which ends it: a server was killed before it had restored it |
//! | of this node | none | given up, after the time that a create may take: the request may be on its way |
//! | none | of this server, of the class `node` | claimed: it was created before the server joined the fleet |
//! | of another node | of this server | logged |

use crate::node::Node;
use crate::release::Release;
use crate::sandbox_key::{key, owned_id};
use crate::store_class::pushed::PushedRecord;
use isolet_clock::now_ms;
use isolet_cluster::model::{Class, Epoch, SandboxKey};
use isolet_cluster::ownership::{Claimed, HeldSandbox, ListCursor, OwnershipError};
use isolet_sandbox::{OwnedId, SandboxClass};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval_at};
use tracing::{error, info, warn};

/// The time between two comparisons.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How much longer than the pull of an image a create may take.
const CREATE_WAIT: Duration = Duration::from_secs(120);
/// Keys of one page.
const PAGE: u16 = 1000;
/// Maximum number of sandboxes that one sweep has restored because their lifetime is over: others wait for
/// the next one, so that releases are not delayed by restores.
const ENDED_MAX: usize = 4;

/// Records of this node without a sandbox: their epoch, and when they were first seen.
#[derive(Default)]
pub(crate) struct Absent(HashMap<SandboxKey, FirstSeen>);

/// A record of this node.
#[derive(Clone, Copy)]
struct Held {
    epoch: Epoch,
    class: Class,
}

struct FirstSeen {
    epoch: Epoch,
    at: Instant,
}

/// Compares until the task is aborted, and gives up what is removed.
pub(crate) async fn keep(node: Arc<Node>, mut removals: broadcast::Receiver<Arc<OwnedId>>) {
    let mut absent = Absent::default();
    let mut state = node.state.clone();
    let mut registration = state.borrow_and_update().registration();
    let mut clock = interval_at(tokio::time::Instant::now() + SWEEP_EVERY, SWEEP_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            removed = removals.recv() => match removed {
                Ok(removed) => {
                    // The queue is bounded; a sweep gives up what it does not take.
                    let _ = node.releases.try_send(Release::Absent(removed));
                    continue;
                }
                // A sweep finds those that were missed.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            changed = state.changed() => {
                if changed.is_err() {
                    return;
                }
                let now = state.borrow_and_update().registration();
                if now.is_none() || now == registration {
                    continue;
                }
                registration = now;
                // While it was away, others may have taken over what it owned.
                node.ownership.forget_all();
            }
            _ = clock.tick() => {}
        }
        if node.state.borrow().registration().is_none() {
            continue;
        }
        if let Err(failure) = node.sweep(&mut absent).await {
            warn!(error = %failure, "cannot compare the records of ownership; it is tried again");
        }
    }
}

impl Node {
    /// Compares once.
    ///
    /// # Errors
    /// The records cannot be read or written.
    pub(crate) async fn sweep(&self, absent: &mut Absent) -> Result<(), OwnershipError> {
        // In this order: a sandbox is recorded in etcd before it is created.
        let own = self.service.sandbox_ids();
        let held = self.held().await?;
        self.claim_unrecorded(&own, &held).await?;
        let patience = self.service.pull_timeout() + CREATE_WAIT;
        let own: HashSet<SandboxKey> =
            own.iter().filter_map(|one| key(&one.tenant, &one.id)).collect();
        let mut missing = Absent::default();
        let mut ended = 0;
        for (sandbox, Held { epoch, class }) in held {
            if own.contains(&sandbox) {
                continue;
            }
            let known = absent.0.remove(&sandbox).filter(|known| known.epoch == epoch);
            let seen = known.unwrap_or_else(|| FirstSeen { epoch, at: Instant::now() });
            let stored = self.stored_if_readable(&sandbox).await?;
            // Of the class `node`, only one that was moved can be restored: its task finds out.
            let may_be_lost =
                class == Class::Node || stored.as_ref().is_some_and(|stored| !stored.names_any());
            if let Some(id) = owned_id(&sandbox) {
                let is_over = |stored: &PushedRecord| stored.is_over(now_ms());
                if ended < ENDED_MAX && stored.as_ref().is_some_and(is_over) {
                    ended += 1;
                    if self.clock_agrees().await {
                        let _ = self.releases.try_send(Release::Ended(id.into()));
                    }
                } else if seen.at.elapsed() >= patience && may_be_lost {
                    info!(%sandbox, "no sandbox belongs to this record of ownership; it is given up");
                    // Its task looks again whether there is one.
                    let _ = self.releases.try_send(Release::Absent(id.into()));
                }
            }
            missing.0.insert(sandbox, seen);
        }
        *absent = missing;
        Ok(())
    }

    /// The snapshots of a sandbox; `None` if their record cannot be read, which concerns this sandbox only.
    async fn stored_if_readable(
        &self,
        sandbox: &SandboxKey,
    ) -> Result<Option<PushedRecord>, OwnershipError> {
        match self.stored(sandbox).await {
            Err(error @ OwnershipError::Unreadable { .. }) => {
                warn!(%sandbox, %error, "a sandbox that this node lacks is left as it is");
                Ok(None)
            }
            stored => stored.map(Some),
        }
    }

    /// Holds the ids that this node owns and of which it has no sandbox, before requests arrive. The last
    /// server may have ended between the removal of a sandbox that leaves and the record that any node may
    /// restore it; a request in between must not create an empty one.
    ///
    /// # Errors
    /// The records cannot be read.
    pub(crate) async fn hold_absent(&self) -> Result<(), OwnershipError> {
        for sandbox in self.held().await?.into_keys() {
            let id = owned_id(&sandbox);
            if let Some(id) = id.filter(|id| !self.service.has_sandbox(&id.tenant, &id.id)) {
                self.service.hold_id(&id.tenant, &id.id);
            }
        }
        Ok(())
    }

    /// All records of this node.
    async fn held(&self) -> Result<HashMap<SandboxKey, Held>, OwnershipError> {
        let mut all = HashMap::new();
        let mut after: Option<ListCursor> = None;
        loop {
            let page = self.ownership.held(&self.settings.node, after.as_ref(), PAGE).await?;
            let held =
                |one: HeldSandbox| (one.sandbox, Held { epoch: one.epoch, class: one.class });
            all.extend(page.sandboxes.into_iter().map(held));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Claims the sandboxes of this server that have no record.
    async fn claim_unrecorded(
        &self,
        own: &[OwnedId],
        held: &HashMap<SandboxKey, Held>,
    ) -> Result<(), OwnershipError> {
        // Another node may have owned a sandbox of the class store since: the ownership driver ends it.
        let survives = |one: &&OwnedId| {
            let local = self.service.local_sandbox(&one.tenant, &one.id);
            local.is_some_and(|local| local.class == SandboxClass::Store)
        };
        let own = own.iter().filter(|one| !survives(one));
        let keys = own.filter_map(|one| key(&one.tenant, &one.id));
        let unrecorded: Vec<SandboxKey> = keys.filter(|key| !held.contains_key(key)).collect();
        let claimed = self.claim_all(&unrecorded, "on this node before it joined").await;
        for (key, claimed) in unrecorded.iter().zip(claimed) {
            match claimed {
                Ok(Claimed::Owned(owner)) if !self.owns(&owner) => error!(
                    sandbox = %key, owner = %owner.node,
                    "another node owns a sandbox with this id; the one on this node is not reachable"
                ),
                Ok(_) => {}
                // It concerns this sandbox only.
                Err(error @ OwnershipError::Unreadable { .. }) => {
                    error!(sandbox = %key, %error, "the sandbox on this node is not reachable");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
