//! Sandboxes that no node has: shown, listed and deleted without being restored. And sandboxes on their
//! way to another node: which node takes them, and how it does.

use crate::error::unavailable;
use crate::node::Node;
use crate::sandbox_key::{key, owned_id};
use crate::store_class::discards;
use crate::store_class::pushed::note;
use isolet_cluster::model::{Epoch, Label, Labels, Member, Members, Owner, SandboxKey};
use isolet_cluster::ownership::{OwnershipError, StoredSandbox};
use isolet_cluster::placement::{PlacementRequest, place};
use isolet_http::fleet::{FleetError, MoveTo, Peer, Presence, StoredAway};
use isolet_sandbox::{Departed, SandboxId, TenantId};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::warn;

/// Descriptions in one page: together they fit into an answer of etcd.
const PAGE_MAX: u16 = 100;

/// Lets other nodes restore what this node evicts, until the task is aborted.
pub(crate) async fn follow_evictions(node: Arc<Node>, mut evictions: mpsc::Receiver<Departed>) {
    while let Some(departed) = evictions.recv().await {
        // If that does not succeed, the driver of the protocol repeats it.
        if !node.driver.store_away(&departed.sandbox).await {
            warn!(sandbox = %departed.sandbox, "evicted, and used again or not stored away yet");
        }
    }
}

impl Node {
    fn away(&self, tenant: &TenantId, stored: &StoredSandbox) -> Option<StoredAway> {
        let id = owned_id(&stored.sandbox)?.id;
        let info = self.service.described(tenant, &id, &stored.description)?;
        let epoch = u64::try_from(stored.epoch.revision()).unwrap_or_default();
        Some(StoredAway { info, epoch, region: None })
    }

    /// A sandbox that no node has; `None`: a node has it, or it does not exist.
    pub(crate) async fn stored_away(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
    ) -> Result<Option<StoredAway>, FleetError> {
        let Some(key) = key(tenant, sandbox) else { return Ok(None) };
        let stored = self.ownership.stored(&key).await.map_err(|error| unavailable(&error))?;
        let away = stored.and_then(|stored| self.away(tenant, &stored));
        let Some(away) = away else { return Ok(None) };
        let owner = self.ownership.owner_in_etcd(&key).await.map_err(|e| unavailable(&e))?;
        let is_same = |owner: &Owner| owner.is_stored();
        Ok(owner.filter(is_same).map(|owner| StoredAway { region: Some(owner.region), ..away }))
    }

    /// The sandboxes of a tenant that no node has, behind `after`, and whether there are more.
    pub(crate) async fn page_of_stored(
        &self,
        tenant: &TenantId,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<(Vec<StoredAway>, bool), FleetError> {
        let mut after = after.and_then(|after| key(tenant, after));
        let mut all = Vec::new();
        loop {
            let left = u16::try_from(limit - all.len()).unwrap_or(PAGE_MAX).min(PAGE_MAX);
            let page = self.ownership.stored_of_tenant(tenant.as_str(), after.as_ref(), left).await;
            let page = page.map_err(|error| unavailable(&error))?;
            let last = page.sandboxes.last().map(|last| last.sandbox.clone());
            all.extend(page.sandboxes.iter().filter_map(|one| self.away(tenant, one)));
            if !page.has_more || last.is_none() || all.len() >= limit {
                return Ok((all, page.has_more));
            }
            after = last;
        }
    }

    /// Deletes a sandbox that no node has, with the snapshots that servers took of it, and adds its usage
    /// to that of its tenant on this node. Returns whether it still was as at this epoch.
    ///
    /// If this server is killed between the deletion in etcd and its own record, the usage is lost. In the
    /// other order, two nodes that delete it at once would both count it.
    ///
    /// The snapshots are deleted at `not_before_ms`, see [`discards`].
    pub(crate) async fn delete_stored_away(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        epoch: Epoch,
        not_before_ms: i64,
    ) -> Result<bool, FleetError> {
        let Some(key) = key(tenant, sandbox) else { return Ok(false) };
        let owner = self.ownership.owner_in_etcd(&key).await.map_err(|e| unavailable(&e))?;
        let is_same = |owner: &Owner| owner.is_stored() && owner.epoch == epoch;
        let Some(owner) = owner.filter(is_same) else { return Ok(false) };
        let stored = self.stored(&key).await.map_err(|error| unavailable(&error))?;
        let described = self.ownership.stored(&key).await.map_err(|error| unavailable(&error))?;
        let left = discards::list(&key, epoch, &stored, not_before_ms);
        let fence = discards::fence(&self.ownership, &key, epoch, left.as_ref());
        match self.ownership.release_stored(&fence, owner.ends_at_ms).await {
            Ok(()) => {
                let description = described.map(|one| one.description).unwrap_or_default();
                let counted = self.service.count_ended(tenant, sandbox, &description).await;
                if let Err(error) = counted {
                    warn!(sandbox = %key, %error, "its usage is not counted");
                }
                if not_before_ms == discards::AT_ONCE {
                    discards::begin(&self.service, &self.ownership, left);
                }
                Ok(true)
            }
            Err(OwnershipError::Stale { .. }) => Ok(false),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// The node to which a sandbox is moved; `None`: it is there already.
    pub(crate) async fn target_of(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        memory_mib: u64,
        to: &MoveTo,
    ) -> Result<Option<Peer>, FleetError> {
        let Some(key) = key(tenant, sandbox) else { return Ok(None) };
        let owner = self.ownership.owner(&key).await.map_err(|error| unavailable(&error))?;
        let Some(owner) = owner else { return Err(FleetError::NoTarget("no node owns it".into())) };
        let members = self.current_members();
        let (members, region) = match to {
            MoveTo::Node(name) => {
                if *name == owner.node && !owner.is_stored() {
                    return Ok(None);
                }
                let member = members.get(name).cloned();
                let member = member.ok_or_else(|| FleetError::NoNode(name.clone()))?;
                let region = member.record.region.clone();
                (only(&members, [member]), region)
            }
            MoveTo::Region(region) => {
                let parsed = Label::parse(region);
                let region = parsed.map_err(|_| {
                    FleetError::NoTarget(format!("no node is in the region {region:?}"))
                })?;
                let own = members.get(&owner.node).map(|own| own.record.region.clone());
                if !owner.is_stored() && own.as_ref() == Some(&region) {
                    return Ok(None);
                }
                (members, region)
            }
            MoveTo::Away => {
                let others = members.iter().filter(|member| member.record.name != owner.node);
                let others: Vec<Member> = others.cloned().collect();
                let region = Label::parse(&owner.region);
                let region = region.unwrap_or_else(|_| self.settings.region.clone());
                (only(&members, others), region)
            }
        };
        let request = PlacementRequest {
            sandbox: key.clone(),
            origin: self.settings.node.clone(),
            region,
            class: owner.class,
            labels: Labels::new(),
            image: None,
            snapshot_nodes: Vec::new(),
            memory_mib,
            reserved_mib: self.reservations.by_node(),
            strategy: self.settings.placement,
        };
        let placed = place(&request, &members);
        let placed = placed.map_err(|full| FleetError::NoTarget(full.missing.to_string()))?;
        self.reservations.add(&key, &placed.node, memory_mib);
        let address = members.get(&placed.node).map(|member| member.record.address.clone());
        Ok(Some(Peer { node: placed.node, address: address.unwrap_or_default().into() }))
    }

    /// Takes over a sandbox that was stored away to be moved here, and restores it.
    pub(crate) async fn receive_moved(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
    ) -> Result<(), FleetError> {
        let Some(key) = key(tenant, sandbox) else { return Ok(()) };
        let owner = self.ownership.owner_in_etcd(&key).await.map_err(|e| unavailable(&e))?;
        let Some(owner) = owner else {
            return Err(FleetError::NoTarget("it was deleted on its way".to_owned()));
        };
        if owner.is_stored() {
            let region = self.settings.region.to_string();
            self.take_over(&key, &owner, &region, tenant, sandbox).await?;
        }
        if !self.restorer.lacks(tenant, sandbox) && self.service.has_sandbox(tenant, sandbox) {
            return Ok(());
        }
        let restored = self.restorer.restore(tenant, sandbox, None).await;
        if let Err(FleetError::NotRestored { .. }) = &restored {
            self.give_back(&key).await;
        }
        match restored? {
            Presence::Here(_) if self.service.has_sandbox(tenant, sandbox) => Ok(()),
            _ => Err(FleetError::NoTarget("another node has taken it over".to_owned())),
        }
    }
}

impl Node {
    /// Lets any node take over a sandbox that this one has taken over, and cannot restore.
    pub(super) async fn give_back(&self, key: &SandboxKey) {
        let given_back = async {
            let owner = self.ownership.owner_in_etcd(key).await?;
            let Some(owner) = owner.filter(|owner| self.owns(owner)) else { return Ok(()) };
            let stored = self.stored(key).await?;
            if !stored.is_final {
                return Ok(());
            }
            let Some(id) = owned_id(key) else { return Ok(()) };
            let note = note(&self.service, &id, &stored, None);
            let fence = self.ownership.fence(key, owner.epoch);
            self.ownership.store_away(&fence, &owner, note).await
        };
        if let Err(error) = given_back.await {
            let error: OwnershipError = error;
            warn!(sandbox = %key, %error, "a sandbox that cannot be restored here stays this node's");
        }
    }
}

/// Some of the nodes.
fn only(members: &Members, some: impl IntoIterator<Item = Member>) -> Members {
    let some: BTreeMap<_, _> =
        some.into_iter().map(|member| (member.record.name.clone(), member)).collect();
    Members::new(members.revision, some, Vec::new())
}
