//! Ends sandboxes whose lifetime is over while only the object store has them.
//!
//! The end of a lifetime is a time of day, so a node whose clock does not agree with that of the object store
//! ends nothing. The snapshots of what has ended stay for a day ([`super::discards`]).
//!
//! [`WORKERS`] nodes look for them, so that others do not ask etcd for the same, and one that fails is not
//! missed. Several may end the same sandbox: only one succeeds, by the epoch.
//!
//! A sandbox of which a snapshot is taken before its end is restored for that, by a node that accepts
//! sandboxes in its region; its driver does the rest. If it cannot be restored, its node gives it back, and it
//! is tried again later. If that node is killed before, its next sweep restores it ([`crate::sweep`]).

use crate::error::unavailable;
use crate::node::Node;
use crate::sandbox_key::{key, owned_id};
use crate::store_class::discards::GRACE_MS;
use futures_util::{StreamExt, stream};
use isolet_clock::now_ms;
use isolet_cluster::model::{Member, NodeState, Owner, SandboxKey};
use isolet_cluster::ownership::{Discarded, Ending};
use isolet_http::fleet::FleetError;
use isolet_http::restore_on;
use isolet_sandbox::OwnedId;
use isolet_sandbox::audit::AuditEntry;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How many nodes look.
const WORKERS: usize = 2;
/// Keys of one page. Together with the descriptions, they fit into an answer of etcd.
const PAGE: u16 = 100;
/// Maximum number of pages of one look.
const PAGES_MAX: usize = 100;
/// Deletions that fail, after which a look makes no more of them, because etcd is probably away. The next
/// look continues behind them.
const FAILURES_MAX: usize = 5;
/// Restores that are under way at once.
const RESTORES_AT_ONCE: usize = 4;
/// How long one look begins restores, so that the deletions of the next one do not wait for many.
const RESTORES_MAX: Duration = Duration::from_secs(60);
/// The pause after the first restore of a sandbox that failed. Each further failure doubles it.
const RETRY_MIN: Duration = Duration::from_secs(30);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(3600);
/// Maximum number of remembered sandboxes whose restore failed. When there are more, all are forgotten, and
/// tried again at once.
const REFUSED_MAX: usize = 10_000;
/// What a node remembers between its looks.
#[derive(Default)]
struct Looks {
    /// Where the next one continues; `None`: at the beginning of the list.
    after: Option<Ending>,
    /// Where the next one continues to delete what was given up; `None`: at the beginning of the list.
    discarded: Option<Discarded>,
    /// Sandboxes that could not be restored.
    refused: HashMap<SandboxKey, Refused>,
}

/// Restores of a sandbox that failed.
struct Refused {
    failures: u32,
    /// When to try again.
    not_before: Instant,
}

impl Looks {
    fn waits(&self, sandbox: &SandboxKey) -> bool {
        self.refused.get(sandbox).is_some_and(|one| Instant::now() < one.not_before)
    }

    fn refused(&mut self, sandbox: SandboxKey) {
        if self.refused.len() >= REFUSED_MAX {
            self.refused.clear();
        }
        let now = Instant::now();
        let one = self.refused.entry(sandbox).or_insert(Refused { failures: 0, not_before: now });
        one.not_before = now + pause_after(one.failures);
        one.failures = one.failures.saturating_add(1);
    }
}

/// The pause after a failure that follows this number of earlier ones.
fn pause_after(failures: u32) -> Duration {
    RETRY_MIN.saturating_mul(2_u32.saturating_pow(failures)).min(RETRY_MAX)
}

/// A sandbox that is restored to be ended.
struct Due {
    key: SandboxKey,
    owner: Owner,
    id: OwnedId,
}

/// Ends sandboxes until the task is aborted.
pub(crate) async fn keep(node: Arc<Node>) {
    let mut clock = interval(LOOK_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = Looks::default();
    loop {
        clock.tick().await;
        if !node.ends_stored() {
            continue;
        }
        if let Err(error) = node.end_stored(&mut looks).await {
            warn!(%error, "cannot end sandboxes that only the object store has; it is tried again");
        }
        if let Err(error) = node.discard_due(&mut looks.discarded).await {
            warn!(%error, "cannot delete from the object store what was given up; it is tried again");
        }
    }
}

impl Node {
    /// Whether this node is one of those that look.
    fn ends_stored(&self) -> bool {
        let members = self.members.borrow();
        let ready = |member: &&Member| member.state == NodeState::Ready;
        let holds = |member: &&Member| ready(member) && member.record.store;
        let is_here = |member: &Member| member.record.name == self.settings.node;
        let has_holder = members.iter().any(|member| holds(&member));
        // Without one, sandboxes of the class `node` can still be there, if a move did not end.
        let works = |member: &&Member| if has_holder { holds(member) } else { ready(member) };
        let mut workers = members.iter().filter(works).take(WORKERS);
        self.service.has_snapshot_store() && workers.any(is_here)
    }

    /// Ends all whose time is over: first those that are only deleted, then those that are restored.
    async fn end_stored(&self, looks: &mut Looks) -> Result<(), FleetError> {
        let due = self.delete_ended(looks).await?;
        self.restore_ended(due, looks).await;
        Ok(())
    }

    /// Deletes those without a snapshot before their end, and returns the others, behind where the last look
    /// ended.
    async fn delete_ended(&self, looks: &mut Looks) -> Result<Vec<Due>, FleetError> {
        let mut failures = 0;
        // At most as many as the pages have keys.
        let mut all_due = Vec::new();
        let mut is_agreed = false;
        for _ in 0..PAGES_MAX {
            let page = self.ownership.endings(now_ms(), looks.after.as_ref(), PAGE).await;
            let page = page.map_err(|error| unavailable(&error))?;
            let is_last = page.len() < usize::from(PAGE);
            if !page.is_empty() && !is_agreed {
                if !self.clock_agrees().await {
                    return Ok(all_due);
                }
                is_agreed = true;
            }
            for ending in page {
                if !looks.waits(&ending.sandbox) {
                    match self.delete_unless_due(&ending).await {
                        Ok(due) => all_due.extend(due),
                        Err(error) => {
                            warn!(sandbox = %ending.sandbox, %error, "its time is over, and it is not ended yet");
                            failures += 1;
                        }
                    }
                }
                looks.after = Some(ending);
                if failures == FAILURES_MAX {
                    return Ok(all_due);
                }
            }
            if is_last {
                looks.after = None;
                break;
            }
        }
        Ok(all_due)
    }

    /// Deletes a sandbox, unless a snapshot is taken before its end.
    async fn delete_unless_due(&self, ending: &Ending) -> Result<Option<Due>, FleetError> {
        let owner = self.ownership.owner_in_etcd(&ending.sandbox).await;
        let owner = owner.map_err(|error| unavailable(&error))?;
        let is_meant = |owner: &Owner| owner.is_stored() && owner.ends_at_ms == Some(ending.at_ms);
        let found = owner.filter(is_meant).zip(owned_id(&ending.sandbox));
        let Some((owner, id)) = found else {
            // Nobody stores it with this end any more.
            let forgotten = self.ownership.forget_ending(ending).await;
            return forgotten.map(|()| None).map_err(|error| unavailable(&error));
        };
        let Some(away) = self.stored_away(&id.tenant, &id.id).await? else { return Ok(None) };
        if away.info.snapshots.on_destroy {
            return Ok(Some(Due { key: ending.sandbox.clone(), owner, id }));
        }
        let not_before_ms = now_ms().saturating_add(GRACE_MS);
        if self.delete_stored_away(&id.tenant, &id.id, owner.epoch, not_before_ms).await? {
            info!(sandbox = %ending.sandbox, "its time is over; only the object store had it");
            let entry =
                AuditEntry::now(id.tenant.as_str(), Some(id.id.as_str()), "sandbox.destroyed");
            self.service.audit().put(entry.with("from", "server"));
        }
        Ok(None)
    }

    /// Restores some at once. Those that are not begun in time are found again.
    async fn restore_ended(&self, due: Vec<Due>, looks: &mut Looks) {
        let until = Instant::now() + RESTORES_MAX;
        let due = due.into_iter().take_while(|_| Instant::now() < until);
        let restoring = stream::iter(due).map(|one| self.restore_one(one));
        let mut restored = restoring.buffer_unordered(RESTORES_AT_ONCE);
        while let Some((sandbox, outcome)) = restored.next().await {
            match outcome {
                Ok(()) => drop(looks.refused.remove(&sandbox)),
                Err(reason) => {
                    warn!(%sandbox, reason, "its time is over, and it cannot be restored for its last snapshot; it is tried again");
                    looks.refused(sandbox);
                }
            }
        }
    }

    /// Has a node restore a sandbox that accepts it in its region.
    async fn restore_one(&self, due: Due) -> (SandboxKey, Result<(), String>) {
        let Due { key, owner, id } = due;
        let restored = async {
            let rescuer = self.rescuer(&key, &owner).map_err(|error| error.to_string())?;
            if let Some(peer) = rescuer {
                return restore_on(self, &peer, &id.tenant, &id.id).await;
            }
            let taken = self.take_over(&key, &owner, &owner.region, &id.tenant, &id.id).await;
            taken.map_err(|error| error.to_string())?;
            self.finish_ended(&key, &id).await.map_err(|error| error.to_string())
        };
        let restored = restored.await;
        (key, restored)
    }

    /// Restores a sandbox that this node owns and whose lifetime is over, so that its driver ends it. If it
    /// cannot be restored, it is given back.
    async fn finish_ended(&self, key: &SandboxKey, id: &OwnedId) -> Result<(), FleetError> {
        match self.restorer.restore(&id.tenant, &id.id, None).await {
            // It continues in the background.
            Ok(_) | Err(FleetError::Restoring(_)) => Ok(()),
            Err(error) => {
                if matches!(error, FleetError::NotRestored { .. }) {
                    self.give_back(key).await;
                }
                Err(error)
            }
        }
    }

    /// Ends a sandbox that this node has taken over for its end, and had not restored when the last server
    /// was killed.
    pub(crate) async fn end_absent(&self, id: &OwnedId) {
        let Some(key) = key(&id.tenant, &id.id) else { return };
        if let Err(error) = self.finish_ended(&key, id).await {
            warn!(sandbox = %key, %error, "its time is over, and it cannot be restored for its end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restore_that_fails_is_tried_again_later_and_later() {
        assert_eq!(pause_after(0), RETRY_MIN);
        assert_eq!(pause_after(1), RETRY_MIN * 2);
        assert_eq!(pause_after(40), RETRY_MAX);
        let mut looks = Looks::default();
        let sandbox = SandboxKey::new("t", "one").unwrap();
        assert!(!looks.waits(&sandbox));
        looks.refused(sandbox.clone());
        looks.refused(sandbox.clone());
        assert!(looks.waits(&sandbox));
        let one = &looks.refused[&sandbox];
        assert!(one.failures == 2 && one.not_before > Instant::now() + RETRY_MIN);
    }
}
