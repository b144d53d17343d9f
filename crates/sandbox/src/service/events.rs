//! Follows the events of a tenant's sandboxes.

use crate::{
    model::{
        error::Error,
        events::follow::{Follow, Gap},
        ids::{SandboxId, TenantId},
    },
    service::Service,
};
use std::sync::Arc;

impl Service {
    /// Follows what happens to a tenant's sandboxes, or to one of them: from now on, or behind the
    /// event `last`. Beside it what of that is no longer held.
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
        // One that has ended by now may have told so before anybody followed.
        if !entry.state().visible() {
            return Err(Error::NoSandbox(id.clone()));
        }
        Ok(follow)
    }
}
