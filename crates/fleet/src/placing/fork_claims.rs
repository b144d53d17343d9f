//! Makes this node the owner of the forks that it is about to create.

use crate::node::Node;
use crate::release::Release;
use crate::sandbox_key::key;
use isolet_cluster::model::SandboxKey;
use isolet_cluster::ownership::Claimed;
use isolet_http::fleet::FleetError;
use isolet_sandbox::ownership::ClaimFuture;
use isolet_sandbox::{Error, IdClaims, OwnedId, SandboxId, TenantId};
use std::sync::Weak;

/// The node, as the service asks it, which the node contains.
pub(crate) struct ForkClaims(pub(crate) Weak<Node>);

impl IdClaims for ForkClaims {
    fn claim<'a>(&'a self, tenant: &'a TenantId, ids: &'a [SandboxId]) -> ClaimFuture<'a> {
        Box::pin(async move {
            let node = self.0.upgrade().ok_or(Error::Stopping)?;
            let claimed = node.claim_forks(tenant, ids).await;
            if claimed.is_err() {
                node.settle_all(tenant, ids);
            }
            claimed
        })
    }

    fn settle(&self, tenant: &TenantId, ids: &[SandboxId]) {
        if let Some(node) = self.0.upgrade() {
            node.settle_all(tenant, ids);
        }
    }
}

impl Node {
    async fn claim_forks(&self, tenant: &TenantId, ids: &[SandboxId]) -> Result<(), Error> {
        let unavailable = |reason| Error::FleetUnavailable { reason };
        self.check_count(tenant, ids.len() as u64).await.map_err(|error| match error {
            FleetError::TooManySandboxes { max } => Error::TooManySandboxes { max },
            other => unavailable(other.to_string()),
        })?;
        let keys: Vec<SandboxKey> = ids.iter().filter_map(|id| key(tenant, id)).collect();
        for claimed in self.claim_all(&keys, "forked on its node").await {
            match claimed {
                Ok(Claimed::Won(_)) => {}
                Ok(Claimed::Owned(owner)) => {
                    let node = owner.node;
                    return Err(unavailable(format!("the node {node} owns one of the new ids")));
                }
                Err(error) => return Err(unavailable(error.to_string())),
            }
        }
        for id in ids {
            self.service.returns(tenant, id);
        }
        Ok(())
    }

    fn settle_all(&self, tenant: &TenantId, ids: &[SandboxId]) {
        for id in ids {
            let id = OwnedId { tenant: tenant.clone(), id: id.clone() };
            // The queue is bounded; a sweep does what it does not take.
            let _ = self.releases.try_send(Release::Absent(id.into()));
        }
    }
}
