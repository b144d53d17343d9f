//! The state that all handlers share.

use crate::auth::caller::Caller;
use crate::auth::cancellation::CancellationRegistry;
use crate::auth::not_found_limiter::NotFoundLimiter;
use crate::auth::tickets::Tickets;
use crate::connection::connections::Connections;
use crate::connection::upstream::UpstreamPool;
use crate::dialects::e2b::filesystem::watchers::Watchers;
use crate::fleet::Placement;
use crate::fleet::joined::JoinedFleet;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::limits::limiter::Limiter;
use crate::limits::memory_budget::MemoryBudget;
use isolet_build::Builder;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Sandbox, SandboxId, Service};
use isolet_webhook::Webhooks;
use std::sync::Arc;

/// The state that all handlers share. Clones are cheap.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) service: Service,
    /// Builds of images.
    pub(crate) builder: Builder,
    /// Webhooks and their deliveries.
    pub(crate) webhooks: Webhooks,
    /// Cancels long responses when the server stops or a key is revoked.
    pub(crate) cancellations: CancellationRegistry,
    /// Tickets that browsers exchange for WebSockets.
    pub(crate) tickets: Arc<Tickets>,
    /// The domain below which each port has a host name of its own; see
    /// [`crate::Options::ports_domain`].
    pub(crate) ports_domain: Option<Arc<str>>,
    /// Idle connections to programs in sandboxes.
    pub(crate) upstreams: Arc<UpstreamPool>,
    /// Counts tokens of links that their clients seem to guess.
    pub(crate) link_guesses: Arc<NotFoundLimiter>,
    /// Counts the requests of each tenant.
    pub(crate) limiter: Arc<Limiter>,
    /// The memory budget of responses that are built whole before they are sent.
    pub(crate) response_memory: Arc<MemoryBudget>,
    /// The memory budget of bodies and of what is parsed from them.
    pub(crate) body_memory: Arc<MemoryBudget>,
    /// The open connections of clients.
    pub(crate) connections: Arc<Connections>,
    /// The watchers of directories that clients of E2B's dialect poll.
    pub(crate) e2b_watchers: Arc<Watchers>,
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
}
