//! Signed links and host names of ports, whose rights the owner of the sandbox checks: only it has
//! the secret with which a link was signed.

use crate::app::App;
use crate::auth::authenticator::Authenticator;
use crate::auth::caller::Caller;
use crate::auth::not_found_limiter::{Network, NotFoundLimiter};
use crate::auth::port_link;
use crate::fleet::Whereabouts;
use crate::fleet::joined::JoinedFleet;
use crate::forwarding::errors;
use crate::forwarding::forward;
use crate::forwarding::lookup::rescue::{Settled, settled_owner};
use crate::forwarding::outgoing::Outgoing;
use crate::forwarding::peer_head::{AnswerKind, PeerTarget};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Peer;
use crate::limits::kind::ConnectionKind;
use crate::proxy::{host_name, port_host};
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use isolet_sandbox::{SandboxId, TenantId};

/// What a request to a port needs besides the fleet.
pub(crate) struct LinkRequests<'a> {
    pub(crate) app: &'a App,
    pub(crate) joined: &'a JoinedFleet,
    pub(crate) authenticator: &'a Authenticator,
    pub(crate) not_found: &'a NotFoundLimiter,
}

/// A request that another node answers, or one for this node.
pub(crate) enum LinkAnswer {
    /// With the caller, if the request has a key.
    Elsewhere(Response<Body>, Option<Caller>),
    Here(Request<Body>),
}

impl LinkRequests<'_> {
    /// A request below a link's own path.
    ///
    /// # Errors
    /// Those of the fleet.
    pub(crate) async fn by_path(&self, request: Request<Body>) -> Result<LinkAnswer, ApiError> {
        let token = port_link::token_in_path(request.uri().path()).unwrap_or_default();
        let Some(link) = port_link::unverified(token) else {
            return Ok(LinkAnswer::Here(request));
        };
        let tenant = link.caller.tenant;
        self.by_owner(&tenant, &link.sandbox, Outgoing::new, None, request).await
    }

    /// A request to the host name of a port. `label` is the first part of the name.
    ///
    /// # Errors
    /// As for [`LinkRequests::by_path`], and when the keys cannot be read.
    pub(crate) async fn by_host(
        &self,
        label: &str,
        request: Request<Body>,
    ) -> Result<LinkAnswer, ApiError> {
        let headers = request.headers();
        let known = self.authenticator.caller_of_key(headers)?;
        let linked = port_host::unverified_links(request.uri(), headers).find(|link| {
            let own = host_name::label(&link.caller.tenant, &link.sandbox, link.port);
            own.as_deref() == Some(label)
        });
        let named = match (linked, &known) {
            (Some(link), _) => Some((link.caller.tenant, link.sandbox)),
            (None, Some(caller)) => host_name::parse_label(label, &caller.tenant)
                .map(|(sandbox, _)| (caller.tenant.clone(), sandbox)),
            (None, None) => None,
        };
        let Some((tenant, sandbox)) = named else { return Ok(LinkAnswer::Here(request)) };
        let keep_authorization = known.is_none();
        let outgoing = |request, caller: Option<&Caller>| {
            Outgoing::new(request, caller).by_port_host(label, keep_authorization)
        };
        self.by_owner(&tenant, &sandbox, outgoing, known.as_ref(), request).await
    }

    /// A request to the data plane of a sandbox, whose token the owner of the sandbox checks.
    ///
    /// # Errors
    /// As for [`LinkRequests::by_path`].
    pub(crate) async fn by_token(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        request: Request<Body>,
    ) -> Result<LinkAnswer, ApiError> {
        self.by_owner(tenant, sandbox, Outgoing::new, None, request).await
    }

    async fn by_owner(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        outgoing: impl FnOnce(Request<Body>, Option<&Caller>) -> Outgoing,
        caller: Option<&Caller>,
        request: Request<Body>,
    ) -> Result<LinkAnswer, ApiError> {
        let fleet = &*self.joined.fleet;
        // Anyone can send a link for any sandbox, and each would be looked up.
        let is_unproven = caller.is_none() && fleet.known(tenant, sandbox).is_none();
        let turn = match is_unproven {
            true => {
                let network = Network::of_client(request.extensions().get::<Peer>());
                self.not_found.lookup_turn(network).await
            }
            false => None,
        };
        let Settled { owner, .. } = settled_owner(fleet, tenant, sandbox).await?;
        drop(turn);
        let Whereabouts::There { peer, epoch } = owner else {
            return Ok(LinkAnswer::Here(request));
        };
        let mut outgoing = outgoing(request, caller);
        let target = PeerTarget { tenant: tenant.clone(), sandbox: sandbox.clone(), epoch };
        let cancellation = match caller {
            Some(caller) => self.app.cancellations.subscribe(caller),
            // The owner knows the key of the link.
            None => self.app.cancellations.subscribe_to_stop(),
        };
        let sent = forward::send(fleet, &peer, &mut outgoing, Some(target), cancellation).await;
        let sent = sent.inspect_err(|failure| {
            if failure.error.code == "node_unreachable" {
                fleet.forget(tenant, sandbox, epoch);
            }
        })?;
        let Some(answer) = sent else {
            fleet.forget(tenant, sandbox, epoch);
            return Err(errors::owner_moved(sandbox));
        };
        // Only now it is known whether the link is valid, and may count against its tenant.
        let refused = answer.kind == AnswerKind::Node
            && (answer.status() == StatusCode::UNAUTHORIZED || answer.status().is_redirection());
        let permit = match refused {
            true => None,
            false => {
                let limiter = &self.app.limiter;
                let connection = outgoing.connection.as_ref();
                Some(limiter.acquire(tenant, ConnectionKind::Port, connection)?)
            }
        };
        let response = answer.relay(&peer, &mut outgoing, permit)?;
        Ok(LinkAnswer::Elsewhere(response, caller.cloned()))
    }
}
