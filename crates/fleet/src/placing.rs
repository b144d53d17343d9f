//! Chooses a node for a new sandbox, and makes it the owner.

pub(crate) mod fork_claims;

use crate::error::unavailable;
use crate::load::short_digest;
use crate::node::Node;
use crate::nodes::demanded;
use crate::sandbox_key::key;
use futures_util::future::join_all;
use isolet_cluster::model::{Class, Epoch, Label, Labels, Member, NodeState, Owner, SandboxKey};
use isolet_cluster::ownership::{Claim, Claimed, OwnershipError};
use isolet_cluster::placement::{Placed, PlacementRequest, place};
use isolet_http::fleet::{FleetError, PlacedSandbox, PlacementWish, Whereabouts};
use isolet_sandbox::{SandboxClass, SandboxId, TenantId};
use isolet_wire::node::NodeName;

/// Claims of one call that are under way at once.
const CLAIMS_AT_ONCE: usize = 16;
/// How often a node is chosen again because the chosen one registered again in the meantime.
const ATTEMPTS: usize = 3;
/// When to retry if the node of a snapshot accepts no sandboxes.
const SNAPSHOT_RETRY_S: u64 = 60;

/// The error of a request that wants what no node allows.
fn refused_wish(error: isolet_sandbox::Error) -> FleetError {
    match error {
        isolet_sandbox::Error::BadField { field, reason } => FleetError::BadWish { field, reason },
        other => FleetError::Unavailable(other.to_string()),
    }
}

/// The class of a new sandbox in the records of ownership.
fn class(wish: &PlacementWish) -> Class {
    match wish.class {
        SandboxClass::Node => Class::Node,
        SandboxClass::Store => Class::Store,
    }
}

impl Node {
    /// Chooses a node for a new sandbox and makes it the owner. Returns the owner if there is one.
    ///
    /// # Errors
    /// [`FleetError`].
    pub(crate) async fn place_new(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        wish: &PlacementWish,
    ) -> Result<PlacedSandbox, FleetError> {
        let Some(key) = key(tenant, sandbox) else {
            return Ok(PlacedSandbox { owner: Whereabouts::Nowhere, is_new: false });
        };
        let memory_mib = self.service.memory_of_new(wish.memory_mib).map_err(refused_wish)?;
        self.check_count(tenant, 1).await?;
        if !wish.without.is_empty() {
            self.service.metrics().fleet.placed_refused.inc();
        }
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let placed = self.choose(tenant, &key, wish, memory_mib)?;
            let claim = Claim {
                sandbox: key.clone(),
                class: class(wish),
                region: placed.region.to_string(),
                reason: placed.reason,
            };
            let Some(registration) = self.registration(&placed.node) else { continue };
            match self.ownership.claim_for(&claim, &placed.node, registration).await {
                Ok(Claimed::Won(owner)) => {
                    self.reservations.add(&key, &placed.node, memory_mib);
                    if self.owns(&owner) {
                        self.service.returns(tenant, sandbox);
                    }
                    return Ok(PlacedSandbox { owner: self.whereabouts(&owner), is_new: true });
                }
                Ok(Claimed::Owned(owner)) => {
                    let owner = self.accepted(&key, owner).await?;
                    return Ok(PlacedSandbox { owner, is_new: false });
                }
                // Its lease has just ended, or it has registered again.
                Err(error @ OwnershipError::NotAMember { .. }) => {
                    self.with_membership(|membership| drop(membership.suspect(&placed.node)));
                    refused = Some(error);
                }
                Err(error) => return Err(unavailable(&error)),
            }
        }
        let reason = refused.map_or_else(
            || {
                "no node accepted it: the leases of those that were chosen had just ended"
                    .to_owned()
            },
            |e| e.to_string(),
        );
        Err(FleetError::Unavailable(reason))
    }

    /// Claims sandboxes of this node. The results have the order of the sandboxes.
    pub(crate) async fn claim_all(
        &self,
        sandboxes: &[SandboxKey],
        reason: &str,
    ) -> Vec<Result<Claimed, OwnershipError>> {
        let mut all = Vec::with_capacity(sandboxes.len());
        for some in sandboxes.chunks(CLAIMS_AT_ONCE) {
            all.extend(join_all(some.iter().map(|key| self.claim_here(key, reason))).await);
        }
        all
    }

    /// Claims a sandbox of this node.
    pub(crate) async fn claim_here(
        &self,
        sandbox: &SandboxKey,
        reason: &str,
    ) -> Result<Claimed, OwnershipError> {
        let claim = Claim {
            sandbox: sandbox.clone(),
            class: Class::Node,
            region: self.settings.region.to_string(),
            reason: reason.to_owned(),
        };
        self.ownership.claim(&claim).await
    }

    pub(crate) fn owns(&self, owner: &Owner) -> bool {
        owner.node == self.settings.node && !owner.is_stored()
    }

    /// Checks the limit of the tenant on all nodes together, for `more` sandboxes.
    pub(crate) async fn check_count(&self, tenant: &TenantId, more: u64) -> Result<(), FleetError> {
        let max = self.service.quota(tenant).1;
        let count = self.ownership.count(tenant.as_str()).await;
        if count.map_err(|error| unavailable(&error))? + more > u64::from(max) {
            return Err(FleetError::TooManySandboxes { max });
        }
        Ok(())
    }

    fn choose(
        &self,
        tenant: &TenantId,
        key: &SandboxKey,
        wish: &PlacementWish,
        memory_mib: u64,
    ) -> Result<Placed, FleetError> {
        let (region, labels) = demanded(wish.region.as_deref(), &wish.labels)
            .map_err(|(field, reason)| FleetError::BadWish { field, reason })?;
        if let Some(node) = &wish.node {
            return self.node_of_snapshot(node, region.as_ref(), &labels);
        }
        let image = wish.image.as_deref();
        let image = image.and_then(|name| self.service.find_image(tenant, name).ok());
        let request = PlacementRequest {
            sandbox: key.clone(),
            origin: self.settings.node.clone(),
            region: region.unwrap_or_else(|| self.settings.region.clone()),
            class: class(wish),
            labels,
            image: image.map(|image| short_digest(&image.digest)),
            snapshot_nodes: Vec::new(),
            memory_mib,
            reserved_mib: self.reservations.by_node(),
            strategy: self.settings.placement,
        };
        let members = self.current_members().without(&wish.without);
        place(&request, &members).map_err(|full| FleetError::Full {
            missing: full.missing.to_string(),
            retry_after_s: full.retry_after.as_secs(),
        })
    }

    /// The only node that can create a sandbox from a snapshot that is not in the object store.
    fn node_of_snapshot(
        &self,
        node: &NodeName,
        region: Option<&Label>,
        labels: &Labels,
    ) -> Result<Placed, FleetError> {
        let full = |missing| FleetError::Full { missing, retry_after_s: SNAPSHOT_RETRY_S };
        let member = self.current_members().get(node).cloned();
        let member = member.filter(Member::accepts_sandboxes);
        let Some(member) = member else {
            return Err(full(format!(
                "the node {node} has the snapshot, and accepts no sandboxes"
            )));
        };
        if let Some(region) = region.filter(|region| **region != member.record.region) {
            let own = &member.record.region;
            return Err(full(format!(
                "the node {node} has the snapshot, and is in {own}, not {region}"
            )));
        }
        let has = |(name, value)| member.record.labels.get(name) == Some(value);
        if let Some((name, value)) = labels.iter().find(|label| !has(*label)) {
            return Err(full(format!(
                "the node {node} has the snapshot, and no label {name}={value}"
            )));
        }
        let reason = "has the snapshot".to_owned();
        Ok(Placed { node: node.clone(), region: member.record.region, reason })
    }

    /// Since when a node holds its lease; `None`: its lease has ended.
    fn registration(&self, node: &NodeName) -> Option<Epoch> {
        let member = self.member(node)?;
        let holds = matches!(member.state, NodeState::Ready | NodeState::Suspect);
        member.registration.filter(|_| holds)
    }
}
