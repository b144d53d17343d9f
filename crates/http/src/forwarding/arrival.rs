//! Requests that another node forwards to this one.
//!
//! The other node has authenticated the caller and checked its limits. This node checks that it owns
//! the sandbox at the epoch that the other one knows, and answers. It never forwards such a request.

use crate::app::App;
use crate::auth::authenticator::Authenticator;
use crate::auth::caller::Caller;
use crate::auth::port_link;
use crate::dialects::e2b::access_token;
use crate::dialects::e2b::routes::is_data_plane;
use crate::dialects::error_response;
use crate::fleet::{PeerHandler, Presence, Whereabouts};
use crate::forwarding::lingering_body::LingeringBody;
use crate::forwarding::lookup::owner_of;
use crate::forwarding::lookup::rescue;
use crate::forwarding::peer_head::{AnswerKind, PeerHead, PeerTarget};
use crate::forwarding::route_table::Routing;
use crate::forwarding::{errors, node_call, sandbox_of};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::{ClaimedId, JustRestored, Peer, Proxied};
use crate::foundation::request_id::{REQUEST_ID, RequestId};
use crate::foundation::trace;
use crate::proxy::port_host;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::FutureExt;
use isolet_sandbox::{RestoredFrom, SandboxId, SnapshotId};
use isolet_wire::node::NodeName;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tower::ServiceExt;
use tracing::{Instrument, debug, error};

/// Marks a request of another node, in its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Arrived(Option<PeerTarget>);

impl Arrived {
    /// The sandbox whose owner was checked.
    pub(super) fn sandbox(&self) -> Option<&SandboxId> {
        self.0.as_ref().map(|target| &target.sandbox)
    }

    /// Checks that the request is about the sandbox whose epoch was checked.
    ///
    /// # Errors
    /// 400.
    pub(super) async fn check(
        &self,
        request: &mut Request,
        routing: Routing,
    ) -> Result<(), ApiError> {
        let right = match (&self.0, routing) {
            (Some(target), Routing::Sandbox(_)) => {
                let id = sandbox_of::path_parameter(request, "id").await;
                id.as_deref() == Some(target.sandbox.as_str())
            }
            (Some(_), Routing::Body(_) | Routing::Session) => true,
            (None, Routing::Snapshot | Routing::BodySnapshot) => true,
            (None, Routing::List(_) | Routing::Events) => true,
            _ => false,
        };
        let message = "the request of another node is not for the sandbox that it names";
        if right { Ok(()) } else { Err(ApiError::bad_request(message)) }
    }
}

/// Answers requests of other nodes.
pub(crate) struct Arrivals {
    pub(crate) app: App,
    pub(crate) router: Router,
    pub(crate) authenticator: Authenticator,
}

impl Arrivals {
    pub(crate) fn into_handler(self) -> PeerHandler {
        let own = Arc::new(self);
        Arc::new(move |from, request| {
            let own = Arc::clone(&own);
            Box::pin(async move { own.answer(from, request).await })
        })
    }

    async fn answer(&self, from: NodeName, request: Request<Body>) -> Response {
        let id = RequestId::of(request.headers());
        let span = trace::request_span(request.method(), request.headers(), &id);
        let path = request.uri().path().to_owned();
        let request = request.map(LingeringBody::wrap);
        let answered = AssertUnwindSafe(self.respond(request)).catch_unwind();
        let answered = id.clone().scope(answered).instrument(span.clone()).await;
        let answered = answered.unwrap_or_else(|_| {
            error!(%from, "a handler panicked");
            let hint = "only this request failed; see the log of the node";
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Err(ApiError::new(status, "internal_error", "internal fault", hint))
        });
        let mut response = answered.unwrap_or_else(|failure| {
            let not_owner = failure.code == "not_owner";
            let mut response = error_response(failure, &path);
            if not_owner {
                response.extensions_mut().insert(NotOwner);
            }
            response
        });
        trace::record_status(&span, response.status());
        let kind = kind(&response);
        let headers = response.headers_mut();
        kind.write(headers);
        if !matches!(kind, AnswerKind::Program(_)) || !headers.contains_key(&REQUEST_ID) {
            headers.insert(REQUEST_ID, id.into_header());
        }
        if kind != AnswerKind::Program(Proxied { own_origin: true }) {
            let nosniff = HeaderValue::from_static("nosniff");
            headers.insert("x-content-type-options", nosniff);
        }
        debug!(%from, status = response.status().as_u16(), "answered another node");
        response
    }

    async fn respond(&self, mut request: Request<Body>) -> Result<Response, ApiError> {
        if self.app.cancellations.is_stopping() {
            return Err(isolet_sandbox::Error::Stopping.into());
        }
        if request.uri().path() == node_call::PATH {
            return node_call::answer(&self.app, request).await;
        }
        if node_call::images::owns(request.uri().path()) {
            return node_call::images::answer(&self.app, request).await;
        }
        let head = PeerHead::take(request.headers_mut())?;
        let restored = match &head.target {
            Some(target) => {
                let called;
                (request, called) = sandbox_of::called_snapshot(request).await?;
                self.check_owner(target, called.as_ref()).await?
            }
            None => None,
        };
        if let Some(restored) = &restored {
            request.extensions_mut().insert(JustRestored(restored.clone()));
        }
        let scheme = head.scheme();
        let caller = head.caller.map(Caller::from);
        let target = head.target.clone();
        let extensions = request.extensions_mut();
        extensions.insert(Peer(head.client));
        extensions.insert(scheme);
        if let Some(target) = &head.target {
            extensions.insert(ClaimedId(target.sandbox.clone()));
        }
        extensions.insert(Arrived(head.target));
        if let Some(caller) = &caller {
            trace::record_tenant(&caller.tenant);
            extensions.insert(caller.clone());
        }
        if let Some(label) = head.port_label {
            let entered = port_host::answer(&self.app, &self.authenticator, &label, request);
            let mut response = entered.await.0;
            rescue::write(restored.as_deref(), response.headers_mut());
            return Ok(response);
        }
        if caller.is_none() {
            if let Some(target) = target.filter(|_| is_data_plane(request.uri().path())) {
                self.authenticate_e2b(&target.sandbox, &mut request).await?;
            } else {
                let token = port_link::token_in_path(request.uri().path()).unwrap_or_default();
                let app = &self.app;
                let client = request.extensions().get();
                let link = port_link::verify(&app.service, &app.link_guesses, client, token)?;
                request.extensions_mut().insert(link.ok_or_else(port_link::bad_link)?);
            }
        }
        match self.router.clone().oneshot(request).await {
            Ok(mut response) => {
                rescue::write(restored.as_deref(), response.headers_mut());
                Ok(response)
            }
            Err(never) => match never {},
        }
    }

    /// Finds the caller of a request to the data plane of a sandbox.
    async fn authenticate_e2b(
        &self,
        sandbox: &SandboxId,
        request: &mut Request<Body>,
    ) -> Result<(), ApiError> {
        let service = &self.app.service;
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let caller = access_token::authenticate(service, sandbox, method, uri, headers).await?;
        trace::record_tenant(&caller.tenant);
        request.extensions_mut().insert(caller);
        Ok(())
    }

    /// Checks that this node owns the sandbox at the epoch that the other node knows, and restores it
    /// if it lacks it.
    async fn check_owner(
        &self,
        target: &PeerTarget,
        called: Option<&SnapshotId>,
    ) -> Result<Option<Box<RestoredFrom>>, ApiError> {
        let not_owner = || errors::not_owner(&target.sandbox);
        let joined = self.app.fleet.as_ref().ok_or_else(not_owner)?;
        let fleet = &*joined.fleet;
        let mut owner = owner_of(fleet, &target.tenant, &target.sandbox).await?;
        let is_older = |epoch: u64| epoch < target.epoch;
        if let Whereabouts::Here { epoch } | Whereabouts::There { epoch, .. } = owner
            && is_older(epoch)
        {
            // The other node knows more.
            fleet.forget(&target.tenant, &target.sandbox, epoch);
            owner = fleet.find(&target.tenant, &target.sandbox).await?;
        }
        let owned = matches!(owner, Whereabouts::Here { epoch } if epoch == target.epoch);
        if !owned {
            return Err(not_owner());
        }
        let present = rescue::present(&*joined.fleet, &target.tenant, &target.sandbox, called);
        match present.await? {
            Presence::Here(restored) => Ok(restored),
            Presence::NotOwner => Err(not_owner()),
        }
    }
}

/// Marks the response of a node that does not own the sandbox, in its extensions.
#[derive(Debug, Clone, Copy)]
struct NotOwner;

fn kind(response: &Response) -> AnswerKind {
    let extensions = response.extensions();
    if extensions.get::<NotOwner>().is_some() {
        return AnswerKind::NotOwner;
    }
    extensions.get::<Proxied>().map_or(AnswerKind::Node, |proxied| AnswerKind::Program(*proxied))
}
