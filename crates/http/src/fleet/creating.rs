//! Requests on the owner that may create their sandbox.

use crate::fleet::joined::JoinedFleet;
use isolet_sandbox::{OwnedId, SandboxId, TenantId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sandboxes with the number of their requests. Bounded by the requests that the server accepts.
#[derive(Default)]
pub(crate) struct CreatingRequests(Mutex<HashMap<OwnedId, u32>>);

impl CreatingRequests {
    fn lock(&self) -> MutexGuard<'_, HashMap<OwnedId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that may create its sandbox. After the last one of a sandbox, also if its client has
/// disconnected, the ownership is given up if there is no sandbox.
pub(crate) struct CreatingRequest {
    joined: Arc<JoinedFleet>,
    sandbox: OwnedId,
}

impl CreatingRequest {
    pub(crate) fn begin(joined: &Arc<JoinedFleet>, tenant: &TenantId, id: &SandboxId) -> Self {
        let sandbox = OwnedId { tenant: tenant.clone(), id: id.clone() };
        *joined.creating.lock().entry(sandbox.clone()).or_default() += 1;
        Self { joined: Arc::clone(joined), sandbox }
    }
}

impl Drop for CreatingRequest {
    fn drop(&mut self) {
        let mut all = self.joined.creating.lock();
        if let Some(count) = all.get_mut(&self.sandbox) {
            *count -= 1;
            if *count > 0 {
                return;
            }
            all.remove(&self.sandbox);
        }
        drop(all);
        self.joined.fleet.settle(&self.sandbox.tenant, &self.sandbox.id);
    }
}
