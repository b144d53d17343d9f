//! The ids for which calls are creating sandboxes, also before there is an entry: an image may have to
//! be pulled first.

use crate::live::registry::Registry;
use crate::model::ids::{OwnedId, SandboxId, TenantId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ids with the number of calls. Bounded by the requests that the server accepts.
#[derive(Default)]
pub(crate) struct CreatingCalls(Mutex<HashMap<OwnedId, u32>>);

impl CreatingCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<OwnedId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is creating a sandbox. When the last one of an id ends and there is no sandbox, a
/// removal is reported.
pub(crate) struct CreatingCall<'a> {
    registry: &'a Registry,
    id: OwnedId,
}

impl Registry {
    /// Counts a call until the result is dropped.
    pub(crate) fn creating(&self, tenant: &TenantId, id: &SandboxId) -> CreatingCall<'_> {
        let id = OwnedId { tenant: tenant.clone(), id: id.clone() };
        *self.creating.lock().entry(id.clone()).or_default() += 1;
        CreatingCall { registry: self, id }
    }

    /// Whether a call is creating a sandbox with this id.
    pub(crate) fn is_creating(&self, tenant: &TenantId, id: &SandboxId) -> bool {
        let id = OwnedId { tenant: tenant.clone(), id: id.clone() };
        self.creating.lock().contains_key(&id)
    }
}

impl Drop for CreatingCall<'_> {
    fn drop(&mut self) {
        let mut all = self.registry.creating.lock();
        if let Some(count) = all.get_mut(&self.id) {
            *count -= 1;
            if *count > 0 {
                return;
            }
            all.remove(&self.id);
        }
        drop(all);
        if self.registry.find(&self.id.tenant, &self.id.id).is_none() {
            self.registry.report_removal(Arc::new(self.id.clone()));
        }
    }
}
