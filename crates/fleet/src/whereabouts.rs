//! What the HTTP server asks of the fleet.

use crate::error::unavailable;
use crate::load::short_digest;
use crate::node::Node;
use crate::nodes;
use crate::outgoing::Unsent;
use crate::release::Release;
use crate::replication::PutRecord;
use crate::sandbox_key::{key, owned_id};
use crate::store_class::discards::AT_ONCE;
use axum::body::Body;
use hyper::Request;
use isolet_cluster::model::{Class, Epoch, NodeState, Owner, SandboxKey};
use isolet_http::fleet::{
    Fleet, FleetError, FleetFuture, MoveTo, NodeChange, NodeError, NodeInfo, NodeList, Peer,
    PeerHandler, PeerResponse, PlacedSandbox, Placement, PlacementWish, Presence, Rescue,
    SendFailure, StoredAway, Whereabouts,
};
use isolet_metrics::FleetMetrics;
use isolet_sandbox::profiles::Profile;
use isolet_sandbox::{
    CredentialSpec, LocalSandbox, OwnedId, SandboxClass, SandboxId, SnapshotId, TenantId,
};
use isolet_wire::node::NodeName;
use tokio::sync::watch;
use tracing::{error, warn};

impl Node {
    fn metrics(&self) -> &FleetMetrics {
        &self.service.metrics().fleet
    }

    /// Where the owner is.
    pub(crate) fn whereabouts(&self, owner: &Owner) -> Whereabouts {
        let epoch = u64::try_from(owner.epoch.revision()).unwrap_or_default();
        if owner.is_stored() {
            return Whereabouts::Stored { epoch };
        }
        if self.owns(owner) {
            return Whereabouts::Here { epoch };
        }
        // A node that was removed has no address, and is unreachable.
        let address = self.member(&owner.node).map(|member| member.record.address);
        let address = address.unwrap_or_default().into();
        Whereabouts::There { peer: Peer { node: owner.node.clone(), address }, epoch }
    }
}

impl Node {
    /// Where the owner is. If it is this node and the sandbox does not exist yet, this node accepts it
    /// first, so that the node that placed it does not place it elsewhere.
    pub(crate) async fn accepted(
        &self,
        sandbox: &SandboxKey,
        owner: Owner,
    ) -> Result<Whereabouts, FleetError> {
        let id = owned_id(sandbox);
        let exists = id.is_some_and(|id| self.service.has_sandbox(&id.tenant, &id.id));
        if self.owns(&owner) && !exists {
            let fence = self.ownership.fence(sandbox, owner.epoch);
            let accepted = self.ownership.accept(&fence).await;
            if !accepted.map_err(|error| unavailable(&error))? {
                return Ok(Whereabouts::Nowhere);
            }
            if let Some(id) = owned_id(sandbox)
                && self.service.has_departed(&id.tenant, &id.id)
                && !self.stored(sandbox).await.map_err(|e| unavailable(&e))?.names_any()
            {
                // Placed here again after it was deleted elsewhere.
                self.service.returns(&id.tenant, &id.id);
            }
        }
        Ok(self.whereabouts(&owner))
    }
}

fn epoch_of(epoch: u64) -> Epoch {
    Epoch::of_revision(i64::try_from(epoch).unwrap_or(i64::MAX))
}

impl Fleet for Node {
    fn here(&self) -> &NodeName {
        &self.settings.node
    }

    fn known(&self, tenant: &TenantId, sandbox: &SandboxId) -> Option<Whereabouts> {
        let owner = self.ownership.cached(&key(tenant, sandbox)?)?;
        Some(self.whereabouts(&owner))
    }

    fn find<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<Whereabouts, FleetError>> {
        Box::pin(async move {
            let Some(key) = key(tenant, sandbox) else { return Ok(Whereabouts::Nowhere) };
            self.metrics().lookups.inc();
            match self.ownership.owner_in_etcd(&key).await {
                Ok(Some(owner)) => self.accepted(&key, owner).await,
                Ok(None) => {
                    // Its id is free, so nothing is to be restored under it.
                    self.service.returns(tenant, sandbox);
                    Ok(Whereabouts::Nowhere)
                }
                Err(error) => Err(unavailable(&error)),
            }
        })
    }

    fn place<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        wish: &'a PlacementWish,
    ) -> FleetFuture<'a, Result<PlacedSandbox, FleetError>> {
        Box::pin(async move {
            let placed = self.place_new(tenant, sandbox, wish).await;
            let metrics = self.metrics();
            match placed.as_ref().map(|placed| &placed.owner) {
                Ok(Whereabouts::Here { .. }) => metrics.placed_here.inc(),
                Ok(Whereabouts::There { .. }) => metrics.placed_elsewhere.inc(),
                Err(FleetError::Full { .. }) => metrics.placed_nowhere.inc(),
                Ok(Whereabouts::Nowhere | Whereabouts::Stored { .. }) | Err(_) => 0,
            };
            placed
        })
    }

    fn unplace<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        epoch: u64,
    ) -> FleetFuture<'a, bool> {
        Box::pin(async move {
            let Some(key) = key(tenant, sandbox) else { return false };
            let epoch = epoch_of(epoch);
            let owner = self.ownership.cached(&key).filter(|owner| owner.epoch == epoch);
            let Some(owner) = owner else { return false };
            self.reservations.remove(&key);
            match self.give_up_unaccepted(&key, epoch, &owner.node).await {
                Ok(given_up) => given_up,
                Err(error) => {
                    warn!(sandbox = %key, %error, "cannot give up a sandbox that was not created");
                    self.release_later(key, epoch, owner.node);
                    false
                }
            }
        })
    }

    fn settle(&self, tenant: &TenantId, sandbox: &SandboxId) {
        let exists = self.service.has_sandbox(tenant, sandbox);
        let is_here = matches!(self.known(tenant, sandbox), Some(Whereabouts::Here { .. }));
        if exists != is_here {
            let id = OwnedId { tenant: tenant.clone(), id: sandbox.clone() };
            // The queue is bounded; a sweep does what it does not take.
            let _ = self.releases.try_send(Release::Absent(id.into()));
        }
    }

    fn give_up<'a>(&'a self, tenant: &'a TenantId, sandbox: &'a SandboxId) -> FleetFuture<'a, ()> {
        Box::pin(async move {
            let id = OwnedId { tenant: tenant.clone(), id: sandbox.clone() };
            if let Err(error) = self.settle_now(&id).await {
                // The queue of releases and sweeps repeat it.
                warn!(%sandbox, %tenant, %error, "a sandbox that was refused is not given up yet");
            }
        })
    }

    fn has_failed(&self, node: &Peer) -> bool {
        self.is_without_lease(&node.node)
    }

    fn until_lost(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        node: &Peer,
    ) -> Option<watch::Receiver<bool>> {
        let owner = self.ownership.cached(&key(tenant, sandbox)?)?;
        // The node of one of the class `node` may be cut off from etcd only, and answers.
        let follows = owner.class == Class::Store && !self.is_without_lease(&node.node);
        follows.then(|| self.owner_leases.until_lost(&node.node))
    }

    fn registration(&self) -> u64 {
        u64::try_from(self.driver.registration_of_deadline().revision()).unwrap_or_default()
    }

    fn may_answer(&self, tenant: &TenantId, sandbox: &SandboxId, registration: u64) -> bool {
        let found = self.service.local_sandbox(tenant, sandbox);
        let is_store = found.is_some_and(|found| found.class == SandboxClass::Store);
        // By the clock: a server that was stopped has not noticed yet.
        !is_store || self.driver.holds_lease() && self.registration() == registration
    }

    fn rescue<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<Rescue, FleetError>> {
        Box::pin(self.rescue_sandbox(tenant, sandbox))
    }

    fn stored<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<Option<StoredAway>, FleetError>> {
        Box::pin(self.stored_away(tenant, sandbox))
    }

    fn stored_page<'a>(
        &'a self,
        tenant: &'a TenantId,
        after: Option<&'a SandboxId>,
        limit: usize,
    ) -> FleetFuture<'a, Result<(Vec<StoredAway>, bool), FleetError>> {
        Box::pin(self.page_of_stored(tenant, after, limit))
    }

    fn delete_stored<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        epoch: u64,
    ) -> FleetFuture<'a, Result<bool, FleetError>> {
        Box::pin(self.delete_stored_away(tenant, sandbox, epoch_of(epoch), AT_ONCE))
    }

    fn target<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        memory_mib: u64,
        to: &'a MoveTo,
    ) -> FleetFuture<'a, Result<Option<Peer>, FleetError>> {
        Box::pin(self.target_of(tenant, sandbox, memory_mib, to))
    }

    fn begin_move(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        to: &NodeName,
    ) -> Option<Box<dyn std::any::Any + Send>> {
        let key = key(tenant, sandbox)?;
        let moving = self.restorer.begin_move(&self.driver, &key, to.clone())?;
        Some(Box::new(moving))
    }

    fn expect(&self, tenant: &TenantId, sandbox: &SandboxId, credentials: Vec<CredentialSpec>) {
        if let Some(key) = key(tenant, sandbox) {
            self.restorer.give(&key, credentials);
        }
    }

    fn store_away<'a>(&'a self, sandbox: &'a LocalSandbox) -> FleetFuture<'a, bool> {
        Box::pin(self.driver.store_away(sandbox))
    }

    fn receive<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<(), FleetError>> {
        Box::pin(self.receive_moved(tenant, sandbox))
    }

    fn lacks(&self, tenant: &TenantId, sandbox: &SandboxId) -> bool {
        self.restorer.lacks(tenant, sandbox)
    }

    fn restore<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
        called: Option<&'a SnapshotId>,
    ) -> FleetFuture<'a, Result<Presence, FleetError>> {
        Box::pin(self.restorer.restore(tenant, sandbox, called))
    }

    fn abandon<'a>(
        &'a self,
        tenant: &'a TenantId,
        sandbox: &'a SandboxId,
    ) -> FleetFuture<'a, Result<(), FleetError>> {
        Box::pin(self.abandon_sandbox(tenant, sandbox))
    }

    fn forget(&self, tenant: &TenantId, sandbox: &SandboxId, epoch: u64) {
        if let Some(key) = key(tenant, sandbox) {
            self.ownership.forget(&key, epoch_of(epoch));
        }
    }

    fn peers(&self) -> Vec<Peer> {
        let members = self.members.borrow();
        let others = members.iter().filter(|member| {
            member.record.name != self.settings.node && member.state != NodeState::Dead
        });
        let peer = |member: &isolet_cluster::model::Member| Peer {
            node: member.record.name.clone(),
            address: member.record.address.as_str().into(),
        };
        others.map(peer).collect()
    }

    fn peers_by_image(&self, digest: &str) -> Vec<Peer> {
        let image = short_digest(digest);
        let mut peers = self.peers();
        let members = self.members.borrow();
        peers.sort_by_cached_key(|peer| {
            let record = members.get(&peer.node).map(|member| &member.record);
            let has_it = record.is_some_and(|record| record.load.images.contains(&image));
            let is_near = record.is_some_and(|record| record.region == self.settings.region);
            (!has_it, !is_near)
        });
        peers
    }

    fn placement_of(&self, tenant: &TenantId, sandbox: &SandboxId) -> Placement {
        // The owner was looked up before a request for the sandbox came here. A list has not looked.
        match key(tenant, sandbox).and_then(|key| self.ownership.cached(&key)) {
            Some(owner) => {
                Placement { node: owner.node, region: owner.region, reason: Some(owner.reason) }
            }
            None => Placement {
                node: self.settings.node.clone(),
                region: self.settings.region.to_string(),
                reason: None,
            },
        }
    }

    fn nodes(&self) -> NodeList {
        nodes::shown(&self.current_members(), &self.settings.node)
    }

    fn node<'a>(&'a self, name: &'a NodeName) -> FleetFuture<'a, Result<NodeInfo, NodeError>> {
        Box::pin(self.nodes.get(name))
    }

    fn change_node<'a>(
        &'a self,
        name: &'a NodeName,
        change: NodeChange,
    ) -> FleetFuture<'a, Result<NodeInfo, NodeError>> {
        Box::pin(self.nodes.change(name, change))
    }

    fn forget_node<'a>(
        &'a self,
        name: &'a NodeName,
        release: bool,
    ) -> FleetFuture<'a, Result<usize, NodeError>> {
        Box::pin(self.nodes.forget(name, release))
    }

    fn send<'a>(
        &'a self,
        peer: &'a Peer,
        request: Request<Body>,
    ) -> FleetFuture<'a, Result<PeerResponse, SendFailure>> {
        Box::pin(async move {
            let state = self.member(&peer.node).map(|member| member.state);
            let reason = match state {
                None => Some("it is no member of the fleet"),
                Some(NodeState::Dead) => Some("an operator has declared it dead"),
                Some(_) => None,
            };
            if let Some(reason) = reason {
                return Err(SendFailure::Unreachable(reason.to_owned()));
            }
            let is_lost = state == Some(NodeState::Lost);
            let sent = self.outgoing.send(peer, is_lost, request).await;
            let metrics = self.metrics();
            match &sent {
                Ok(_) => metrics.forwarded.inc(),
                Err(Unsent { failure: SendFailure::Unreachable(_), .. }) => {
                    metrics.unreachable.inc()
                }
                Err(Unsent { failure: SendFailure::Lost(_), .. }) => metrics.lost.inc(),
            };
            match sent {
                Ok(response) => Ok(response),
                Err(unsent) => {
                    if unsent.is_suspect {
                        self.suspect(&peer.node).await;
                    }
                    Err(unsent.failure)
                }
            }
        })
    }

    fn put_profile<'a>(
        &'a self,
        tenant: &'a TenantId,
        profile: &'a Profile,
    ) -> FleetFuture<'a, Result<bool, FleetError>> {
        Box::pin(async move {
            match self.replication.put_profile(tenant.as_str(), profile).await {
                Ok(PutRecord::Created) => Ok(true),
                Ok(PutRecord::Replaced) => Ok(false),
                Ok(PutRecord::TooMany { max }) => Err(FleetError::TooManyProfiles { max }),
                Err(error) => Err(FleetError::Unavailable(error.to_string())),
            }
        })
    }

    fn remove_profile<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
    ) -> FleetFuture<'a, Result<bool, FleetError>> {
        Box::pin(async move {
            let removed = self.replication.remove_profile(tenant.as_str(), name).await;
            removed.map_err(|error| FleetError::Unavailable(error.to_string()))
        })
    }

    fn serve(&self, handler: PeerHandler) {
        if !self.begin_serving(handler) {
            error!("requests of other nodes are answered already");
        }
    }
}
