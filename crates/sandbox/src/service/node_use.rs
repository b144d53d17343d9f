//! What a node of a fleet needs to know of its sandboxes.

pub(crate) mod ownership;

use crate::live::snapshots::push_watch::PushState;
use crate::model::error::Error;
use crate::model::ids::{OwnedId, SandboxId, TenantId};
use crate::model::record::check_limits;
use crate::model::state::State;
use crate::service::Service;
use isolet_store::Store;
use isolet_wire::launcher::Limits;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::broadcast;

/// How much of the machine is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// The memory limits of the sandboxes whose processes exist, in MiB.
    pub memory_reserved_mib: u64,
    /// The number of sandboxes.
    pub sandboxes: u32,
    /// The number of sandboxes whose processes exist.
    pub running: u32,
}

impl Service {
    /// How much of the machine is in use. Visits every sandbox once.
    #[must_use]
    pub fn node_use(&self) -> NodeUse {
        let mut used = NodeUse::default();
        for entry in self.inner.registry.all() {
            used.sandboxes += 1;
            let view = entry.view.borrow();
            let record = &view.record;
            if matches!(record.state, State::Sleeping | State::Failed | State::Destroyed) {
                continue;
            }
            used.running += 1;
            used.memory_reserved_mib += record.body.limits.memory_mib;
        }
        used
    }

    /// Whether the disk is below its floor, so that nothing is created here.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.inner.space.check().is_err()
    }

    /// How the first snapshots of sandboxes of the class `store` get to the object store.
    #[must_use]
    pub fn pushes(&self) -> PushState {
        self.inner.snapshot_store.pushes.state()
    }

    /// All sandboxes of this server, also those that are being created or removed.
    #[must_use]
    pub fn sandbox_ids(&self) -> Vec<OwnedId> {
        let all = self.inner.registry.all().into_iter();
        all.map(|entry| OwnedId { tenant: entry.tenant.clone(), id: entry.id.clone() }).collect()
    }

    /// The tenants that have a sandbox with this id.
    #[must_use]
    pub fn owners_of(&self, id: &SandboxId) -> Vec<TenantId> {
        self.inner.registry.owners(id)
    }

    /// Whether a sandbox has this id, also one that is being created or removed.
    #[must_use]
    pub fn has_sandbox(&self, tenant: &TenantId, id: &SandboxId) -> bool {
        self.inner.registry.find(tenant, id).is_some()
    }

    /// Whether a call is creating a sandbox with this id. When it has ended and there is none,
    /// [`Self::removals`] reports it.
    #[must_use]
    pub fn is_creating(&self, tenant: &TenantId, id: &SandboxId) -> bool {
        self.inner.registry.is_creating(tenant, id)
    }

    /// Reports each sandbox that is removed from now on, and each that was not created. A reader that is more than about 1,000
    /// removals behind loses some.
    #[must_use]
    pub fn removals(&self) -> broadcast::Receiver<Arc<OwnedId>> {
        self.inner.registry.removals()
    }

    /// The limits of a sandbox that is created without any.
    #[must_use]
    pub fn default_limits(&self) -> Limits {
        self.inner.config.limits
    }

    /// The memory of a new sandbox in MiB: what the request wants, or the default.
    ///
    /// # Errors
    /// [`Error::BadField`] if the limits of this server do not allow it.
    pub fn memory_of_new(&self, wanted_mib: Option<u64>) -> Result<u64, Error> {
        let limits = self.inner.config.limits;
        let memory_mib = wanted_mib.unwrap_or(limits.memory_mib);
        Ok(check_limits(&self.inner.config, Limits { memory_mib, ..limits })?.memory_mib)
    }

    /// The digests of all images, `sha256:…`, newest first.
    #[must_use]
    pub fn image_digests(&self) -> Vec<String> {
        self.inner.images.digests()
    }

    /// A digest of the limits and quotas of tenants and of the operator's network profiles, which
    /// should be the same on all nodes of a fleet.
    #[must_use]
    pub fn limits_digest(&self) -> String {
        self.inner.config.limits_digest()
    }

    /// The records, for what the nodes of a fleet copy from each other.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.inner.config.data_dir
    }
}
