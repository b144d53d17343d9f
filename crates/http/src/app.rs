//! What every route needs.

use crate::{
    auth::{caller::Caller, cancellation::CancellationRegistry, tickets::Tickets},
    connection::upstream::UpstreamPool,
    foundation::{error::ApiError, input::PathIds},
    limits::{limiter::Limiter, response_memory::ResponseMemory},
};
use isolet_sandbox::{Sandbox, Service, service::Reach};
use std::sync::Arc;

/// What every route needs.
#[derive(Clone)]
pub(crate) struct App {
    /// All sandboxes.
    pub(crate) service: Service,
    /// What ends a long answer.
    pub(crate) cancellations: CancellationRegistry,
    /// What opens sockets from pages.
    pub(crate) tickets: Arc<Tickets>,
    /// As [`crate::Options::ports_domain`].
    pub(crate) ports_domain: Option<Arc<str>>,
    /// Connections to ports that idle.
    pub(crate) upstreams: Arc<UpstreamPool>,
    /// Counts the requests of each tenant.
    pub(crate) limiter: Arc<Limiter>,
    /// For answers that are made whole.
    pub(crate) response_memory: Arc<ResponseMemory>,
}

impl App {
    /// The sandbox that a path names, as it is: nothing is created or woken.
    pub(crate) async fn look(&self, caller: &Caller, ids: &PathIds) -> Result<Sandbox, ApiError> {
        Ok(self.service.reach(&caller.tenant, &ids.sandbox, Reach::Look).await?)
    }
}
