//! Follows the events of a tenant's sandboxes.

use crate::model::error::Error;
use crate::model::events::follow::{Follow, Gap};
use crate::model::ids::{SandboxId, TenantId};
use crate::service::Service;
use std::sync::Arc;

impl Service {
    /// Follows the events of all sandboxes of a tenant, or of one of them: from now on, or after
    /// the event `last`. Also returns the gap of events that are no longer in the ring.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    pub async fn follow(
        &self,
        tenant: &TenantId,
        sandbox: Option<&SandboxId>,
        last: Option<u64>,
    ) -> Result<(Follow, Option<Gap>), Error> {
        let log = self.inner.events.of(tenant);
        let Some(id) = sandbox else { return Ok(Follow::new(log, None, last)) };
        let entry = self.entry(tenant, id)?;
        let of = (id.clone(), Arc::clone(&entry.incarnation));
        let follow = Follow::new(log, Some(of), last);
        // A sandbox that has ended by now may have published its end before this call.
        if !entry.state().visible() {
            return Err(Error::NoSandbox(id.clone()));
        }
        Ok(follow)
    }
}
