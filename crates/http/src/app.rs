//! The state that all handlers share.

use crate::auth::caller::Caller;
use crate::auth::cancellation::CancellationRegistry;
use crate::auth::tickets::Tickets;
use crate::connection::connections::Connections;
use crate::connection::upstream::UpstreamPool;
use crate::fleet::Placement;
use crate::fleet::joined::JoinedFleet;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::limits::limiter::Limiter;
use crate::limits::response_memory::ResponseMemory;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Sandbox, SandboxId, SandboxInfo, Service};
use std::sync::Arc;

/// The state that all handlers share. Clones are cheap.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) service: Service,
    /// Cancels long responses when the server stops or a key is revoked.
    pub(crate) cancellations: CancellationRegistry,
    /// Tickets that browsers exchange for WebSockets.
    pub(crate) tickets: Arc<Tickets>,
    /// The domain below which each port has a host name of its own; see
    /// [`crate::Options::ports_domain`].
    pub(crate) ports_domain: Option<Arc<str>>,
    /// Idle connections to programs in sandboxes.
    pub(crate) upstreams: Arc<UpstreamPool>,
    /// Counts the requests of each tenant.
    pub(crate) limiter: Arc<Limiter>,
    /// The memory budget of responses that are built whole before they are sent.
    pub(crate) response_memory: Arc<ResponseMemory>,
    /// The open connections of clients.
    pub(crate) connections: Arc<Connections>,
    /// The fleet that this server is a node of.
    pub(crate) fleet: Option<Arc<JoinedFleet>>,
}

impl App {
    /// Finds the sandbox that a path names without creating or waking it.
    pub(crate) async fn look(&self, caller: &Caller, ids: &PathIds) -> Result<Sandbox, ApiError> {
        Ok(self.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?)
    }

    /// In a fleet: the node of a sandbox of this server, its region, and why it is there.
    pub(crate) fn placement_of(&self, caller: &Caller, sandbox: &SandboxId) -> Option<Placement> {
        let joined = self.fleet.as_ref()?;
        Some(joined.fleet.placement_of(&caller.tenant, sandbox))
    }

    /// In a fleet: makes this node the owner of sandboxes that it has just forked.
    ///
    /// # Errors
    /// When the records of the fleet cannot be written. The forks are deleted then.
    pub(crate) async fn adopt(
        &self,
        caller: &Caller,
        forks: &[SandboxInfo],
    ) -> Result<(), ApiError> {
        let Some(joined) = &self.fleet else { return Ok(()) };
        let ids: Vec<_> = forks.iter().map(|fork| fork.id.clone()).collect();
        let Err(error) = joined.fleet.adopt(&caller.tenant, &ids).await else { return Ok(()) };
        for id in &ids {
            if let Err(error) = self.service.delete_without_snapshot(&caller.tenant, id).await {
                tracing::warn!(%id, %error, "a fork without an owner stays");
            }
        }
        Err(error.into())
    }
}
