//! Takes over sandboxes that another node can restore from the object store: those of the class `store`
//! whose node has no lease any more, and those of any class that only the object store has. One of the
//! class `node` is among them if its node was declared dead while it was being moved.

use crate::error::unavailable;
use crate::node::Node;
use crate::sandbox_key::key;
use crate::store_class::discards::{self, AT_ONCE};
use crate::store_class::pushed::PushedRecord;
use isolet_cluster::model::{Class, Custody, Label, Labels, Member, NodeState, Owner, SandboxKey};
use isolet_cluster::ownership::{Discarded, OwnershipError, TakenOver};
use isolet_cluster::placement::{PlacementRequest, place};
use isolet_http::fleet::{FleetError, Peer, Rescue, Whereabouts};
use isolet_sandbox::{SandboxId, TenantId};
use isolet_wire::node::NodeName;
use tracing::{info, warn};

impl Node {
    /// Whether a node has no lease, as this node knows it.
    pub(crate) fn is_without_lease(&self, node: &NodeName) -> bool {
        !matches!(self.state_of(node), Some(NodeState::Ready | NodeState::Suspect))
    }

    /// `None`: an operator has removed the node.
    fn state_of(&self, node: &NodeName) -> Option<NodeState> {
        self.member(node).map(|member| member.state)
    }

    /// Takes a sandbox over whose node has no lease, if another node can restore it.
    ///
    /// # Errors
    /// [`FleetError`].
    pub(crate) async fn rescue_sandbox(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
    ) -> Result<Rescue, FleetError> {
        let Some(key) = key(tenant, sandbox) else {
            return Ok(Rescue::Owner(Whereabouts::Nowhere));
        };
        let owner = match self.ownership.cached(&key) {
            Some(owner) => Some(owner),
            None => self.ownership.owner_in_etcd(&key).await.map_err(|e| unavailable(&e))?,
        };
        let Some(owner) = owner else { return Ok(Rescue::Owner(Whereabouts::Nowhere)) };
        let is_stored = owner.is_stored();
        if !is_stored && (self.owns(&owner) || !self.is_without_lease(&owner.node)) {
            return Ok(Rescue::Owner(self.whereabouts(&owner)));
        }
        // A removed node was declared dead before.
        let is_dead = matches!(self.state_of(&owner.node), None | Some(NodeState::Dead));
        let node_dead =
            || FleetError::NodeDead { node: owner.node.clone(), sandbox: sandbox.clone() };
        // One of the class `node` that was being moved can be restored.
        let waits = owner.class == Class::Node && !is_stored;
        if waits && !is_dead {
            return Ok(Rescue::Owner(self.whereabouts(&owner)));
        }
        let stored = PushedRecord::read(&self.ownership, &key).await;
        let stored = stored.map_err(|error| unavailable(&error))?;
        // Its node may have died when the store had all of it, and before it gave it up.
        let is_whole = stored.as_ref().is_some_and(|stored| stored.is_final);
        if waits && owner.custody == Custody::Held && !is_whole {
            return Err(node_dead());
        }
        match stored {
            Some(stored) if stored.is_deleted => {
                // Its node failed before it gave the ownership up.
                let left = discards::list(&key, owner.epoch, &stored, AT_ONCE);
                self.give_up_for(&key, &owner, left.as_ref()).await?;
                discards::begin(&self.service, &self.ownership, left);
                return Ok(Rescue::Owner(Whereabouts::Nowhere));
            }
            Some(stored) if stored.has_any() => {}
            _ if is_dead && !is_stored => return Err(node_dead()),
            _ => {
                let node = owner.node.clone();
                let sandbox = sandbox.clone();
                return Err(FleetError::NoSnapshot { node, sandbox });
            }
        }
        if let Some(to) = owner.destination.as_ref().filter(|_| is_stored) {
            if *to == self.settings.node {
                let region = self.settings.region.to_string();
                return self.take_over(&key, &owner, &region, tenant, sandbox).await;
            }
            // It is on its way there, and its credentials too.
            if let Some(member) = self.member(to).filter(|to| to.state == NodeState::Ready) {
                let address = member.record.address.into();
                return Ok(Rescue::Ask(Peer { node: to.clone(), address }));
            }
        }
        match self.rescuer(&key, &owner)? {
            None => self.take_over(&key, &owner, &owner.region, tenant, sandbox).await,
            Some(peer) => Ok(Rescue::Ask(peer)),
        }
    }

    /// The node that takes a sandbox over; `None`: this one. It must be in the region in which the
    /// sandbox was placed.
    pub(super) fn rescuer(
        &self,
        key: &SandboxKey,
        owner: &Owner,
    ) -> Result<Option<Peer>, FleetError> {
        let is_node = owner.class == Class::Node;
        let may = |member: &Member| {
            member.accepts_sandboxes()
                && !member.record.load.is_full
                && (member.record.store || is_node && self.service.has_snapshot_store())
                && member.record.region.as_str() == owner.region
        };
        if self.current_members().get(&self.settings.node).is_some_and(may) {
            return Ok(None);
        }
        let region = Label::parse(&owner.region).unwrap_or_else(|_| self.settings.region.clone());
        let request = PlacementRequest {
            sandbox: key.clone(),
            origin: self.settings.node.clone(),
            region,
            class: owner.class,
            labels: Labels::new(),
            image: None,
            snapshot_nodes: Vec::new(),
            memory_mib: self.service.default_limits().memory_mib,
            reserved_mib: self.reservations.by_node(),
            strategy: self.settings.placement,
        };
        let members = self.current_members();
        let placed = place(&request, &members).map_err(|full| FleetError::Full {
            missing: full.missing.to_string(),
            retry_after_s: full.retry_after.as_secs(),
        })?;
        let address = self.member(&placed.node).map(|member| member.record.address);
        let address = address.unwrap_or_default().into();
        let peer = Peer { node: placed.node, address };
        Ok(Some(peer).filter(|peer| peer.node != self.settings.node))
    }

    pub(crate) async fn take_over(
        &self,
        key: &SandboxKey,
        from: &Owner,
        region: &str,
        tenant: &TenantId,
        sandbox: &SandboxId,
    ) -> Result<Rescue, FleetError> {
        // A copy that this node had before the failed one owned the sandbox. It must be gone before this
        // node owns the sandbox again.
        if let Some(outdated) = self.service.local_sandbox(tenant, sandbox)
            && !self.driver.end_outdated(&outdated).await
        {
            warn!(sandbox = %key, "an outdated copy on this node does not end");
            return Err(FleetError::Restoring(sandbox.clone()));
        }
        let reason = match from.is_stored() {
            true => "restored from the object store".to_owned(),
            false => format!("node {} had lost its lease", from.node),
        };
        let taken = self.ownership.take_over_into(key, from, region, &reason).await;
        match taken {
            Ok(TakenOver::Won(owner)) => {
                info!(sandbox = %key, from = %from.node, epoch = %owner.epoch, "taken over");
                self.restorer.took_over(key, owner.epoch);
                Ok(Rescue::Owner(self.whereabouts(&owner)))
            }
            Ok(TakenOver::Changed(Some(owner))) => Ok(Rescue::Owner(self.whereabouts(&owner))),
            Ok(TakenOver::Changed(None)) => Ok(Rescue::Owner(Whereabouts::Nowhere)),
            // It holds its lease again.
            Ok(TakenOver::NodeAlive | TakenOver::NotDeclaredDead) => {
                Ok(Rescue::Owner(self.whereabouts(from)))
            }
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Gives up the ownership of another node, which has no lease.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`], also if that node has a lease again.
    async fn give_up_for(
        &self,
        key: &SandboxKey,
        owner: &Owner,
        left: Option<&Discarded>,
    ) -> Result<(), FleetError> {
        let fence = discards::fence(&self.ownership, key, owner.epoch, left);
        let given_up = match owner.is_stored() {
            true => self.ownership.release_stored(&fence, owner.ends_at_ms).await.map(|()| true),
            false => self.ownership.release_of_lost(&fence, &owner.node).await,
        };
        match given_up {
            // Another node owns it now, or none does.
            Ok(true) | Err(OwnershipError::Stale { .. }) => Ok(()),
            Ok(false) => {
                let reason = format!("the node {} has registered again", owner.node);
                Err(FleetError::Unavailable(reason))
            }
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Gives up the id of a sandbox whose node was declared dead.
    ///
    /// # Errors
    /// [`FleetError::Unavailable`].
    pub(crate) async fn abandon_sandbox(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
    ) -> Result<(), FleetError> {
        let Some(key) = key(tenant, sandbox) else { return Ok(()) };
        let owner = self.ownership.owner_in_etcd(&key).await.map_err(|e| unavailable(&e))?;
        let is_other = |owner: &Owner| !self.owns(owner) && !owner.is_stored();
        let Some(owner) = owner.filter(is_other) else { return Ok(()) };
        if !matches!(self.state_of(&owner.node), None | Some(NodeState::Dead)) {
            return Ok(());
        }
        self.give_up_for(&key, &owner, None).await
    }
}
