//! The key of a sandbox in the records of the fleet, and its ids.

use isolet_cluster::model::SandboxKey;
use isolet_sandbox::{OwnedId, SandboxId, TenantId};

/// The key of a sandbox. Ids of tenants and sandboxes always have one.
pub(crate) fn key(tenant: &TenantId, sandbox: &SandboxId) -> Option<SandboxKey> {
    SandboxKey::new(tenant.as_str(), sandbox.as_str()).ok()
}

/// The ids in a key, if they are valid.
pub(crate) fn owned_id(key: &SandboxKey) -> Option<OwnedId> {
    let tenant = TenantId::parse(key.tenant()).ok()?;
    Some(OwnedId { tenant, id: SandboxId::parse(key.id()).ok()? })
}
