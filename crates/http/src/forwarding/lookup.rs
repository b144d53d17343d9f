//! Looks up the owner of a sandbox, and nodes by name.

pub(crate) mod rescue;

use crate::fleet::{Fleet, FleetError, Peer, Whereabouts};
use isolet_sandbox::{SandboxId, TenantId};

/// The owner of a sandbox, without asking anyone if this node knows it.
///
/// # Errors
/// [`FleetError::Unavailable`].
pub(crate) async fn owner_of(
    fleet: &dyn Fleet,
    tenant: &TenantId,
    sandbox: &SandboxId,
) -> Result<Whereabouts, FleetError> {
    match fleet.known(tenant, sandbox) {
        Some(known) => Ok(known),
        None => fleet.find(tenant, sandbox).await,
    }
}

/// The node with this name, if it is another member.
pub(crate) fn peer_named(fleet: &dyn Fleet, node: &str) -> Option<Peer> {
    fleet.peers().into_iter().find(|peer| peer.node.as_str() == node)
}
