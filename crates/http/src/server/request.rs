//! Answers one request: checks that it is meant for this server, authenticates the caller, and
//! calls the router.

use crate::app::App;
use crate::auth::authenticator::Authenticator;
use crate::auth::caller::Caller;
use crate::auth::not_found_limiter::{Network, NotFoundLimiter, Requester};
use crate::auth::origin::{self, Arrival, ServerNames};
use crate::auth::port_link::{self, SignedLink};
use crate::auth::route_access::RouteAccess;
use crate::auth::trusted_proxies::{ClientOrigin, TrustedProxies};
use crate::connection::{head_scanner, smuggling_guard};
use crate::dialects::e2b::address::DataPlane;
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::templates;
use crate::dialects::error_response;
use crate::fleet::joined::JoinedFleet;
use crate::forwarding::links::{LinkAnswer, LinkRequests};
use crate::forwarding::peer_head::{self, PEER_HEAD};
use crate::forwarding::tickets;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::{ErrorCode, Peer, Proxied, Scheme};
use crate::foundation::request_id::{REQUEST_ID, RequestId};
use crate::foundation::trace;
use crate::proxy::{host_name, port_host};
use crate::server::data_plane;
use crate::server::handshake::CurrentTls;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::upgrade::OnUpgrade;
use isolet_sandbox::TRACE_TARGET;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;
use tower::ServiceExt;
use tracing::{Instrument, debug, error, info_span, warn};

pub(super) struct Shared {
    pub(super) authenticator: Authenticator,
    pub(super) names: ServerNames,
    pub(super) trusted_proxies: TrustedProxies,
    /// `None`: the server has no TLS.
    pub(super) tls: Option<CurrentTls>,
    pub(super) router: Router,
    pub(super) app: App,
    pub(super) not_found: Arc<NotFoundLimiter>,
}

/// The connection that a request arrived on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transport {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) scheme: Scheme,
}

/// Answers a request. The response has the id of the request, and so has what is logged on the way.
pub(super) async fn answer(
    shared: &Shared,
    transport: Transport,
    request: Request<Body>,
) -> Response {
    let id = RequestId::of(request.headers());
    let span = trace::request_span(request.method(), request.headers(), &id);
    let answered = id.clone().scope(respond(shared, transport, request));
    let mut response = answered.instrument(span.clone()).await;
    trace::record_status(&span, response.status());
    let foreign = response.extensions().get::<Proxied>().is_some();
    if !foreign || !response.headers().contains_key(&REQUEST_ID) {
        response.headers_mut().insert(REQUEST_ID, id.into_header());
    }
    response
}

async fn respond(shared: &Shared, transport: Transport, mut request: Request<Body>) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let path = loggable_path(request.uri());
    let last = head_scanner::ends_connection(request.headers());
    let upgrade = request.extensions().get::<OnUpgrade>().cloned();
    let ClientOrigin { address, scheme } = shared.trusted_proxies.client_of(
        transport.peer.ip(),
        transport.scheme,
        request.headers_mut(),
    );
    let at = Arrival { local: transport.local, scheme };
    let domain = shared.app.ports_domain.as_deref();
    let name = domain.and_then(|domain| host_name::label_in_host(domain, request.headers()));
    let has_link = port_host::has_link(request.uri(), request.headers());
    // A link leads to the program on the port, also where the port stands for the data plane.
    let plane = DataPlane::of(name.as_deref(), request.headers())
        .map(|plane| plane.filter(|plane| !(plane.by_host && has_link)));
    request.extensions_mut().insert(Peer(address));
    request.extensions_mut().insert(scheme);
    let answered = async {
        match (plane, name) {
            (Ok(None), Some(name)) => port_by_host(shared, &name, request).await,
            (Ok(None), None) => route(shared, at, request).await,
            (Ok(Some(plane)), _) => data_plane::answer(shared, at, plane, request).await,
            (Err(failure), _) => (E2bError::from(failure).into_response(), None),
        }
    };
    let (mut response, requester) =
        AssertUnwindSafe(answered).catch_unwind().await.unwrap_or_else(|_| {
            error!(%method, path, "a handler panicked");
            let hint = "only this request failed; see the server's log";
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            (ApiError::new(status, "internal_error", "internal fault", hint).into_response(), None)
        });
    let foreign = response.extensions().get::<Proxied>().copied();
    if foreign.is_none()
        && let Err(failure) = check_not_found_limit(shared, address, response.status(), requester)
    {
        response = error_response(failure, &path);
    }
    if foreign.is_none() {
        shared.app.service.metrics().requests.responded(response.status().as_u16());
    }
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    if last && !switched {
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        if let Some(upgrade) = upgrade {
            smuggling_guard::close_after_refused_upgrade(upgrade);
        }
    }
    if !foreign.is_some_and(|foreign| foreign.own_origin) {
        headers.insert("x-content-type-options", header::HeaderValue::from_static("nosniff"));
    }
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    let status = response.status();
    let code = response.extensions().get::<ErrorCode>().map(|code| code.0);
    if foreign.is_none() && is_logged(status) {
        warn!(%method, path, from = %address, status = status.as_u16(), error = code, ms, "request failed");
    }
    debug!(%method, path, from = %address, status = status.as_u16(), ms, "answered");
    response
}

/// Whether a failed request is a line in the log. Programs of tenants can cause 502, and an overloaded
/// server (503) does not also write a line for each refusal.
fn is_logged(status: StatusCode) -> bool {
    let quiet =
        [StatusCode::NOT_IMPLEMENTED, StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE];
    status.is_server_error() && !quiet.contains(&status)
}

/// The path for logs: without the token of a signed link, which grants access.
fn loggable_path(uri: &Uri) -> String {
    if uri.path().starts_with(port_link::PATH_PREFIX) {
        return format!("{}…", port_link::PATH_PREFIX);
    }
    uri.path().to_owned()
}

/// Counts a 401 or 404 answer. A wrong credential of an address above the limit is refused with 429,
/// and only here, after it was checked.
fn check_not_found_limit(
    shared: &Shared,
    address: IpAddr,
    status: StatusCode,
    requester: Option<Caller>,
) -> Result<(), ApiError> {
    let now = Instant::now();
    match (requester, status) {
        (Some(caller), StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED) => {
            shared.not_found.record(Requester::of(&caller), now);
            Ok(())
        }
        (None, StatusCode::UNAUTHORIZED) => {
            shared.not_found.record_wrong(Network::of(address), now)
        }
        _ => Ok(()),
    }
}

/// Answers a request to the host name of a port. Also returns the caller when the request has a key.
async fn port_by_host(
    shared: &Shared,
    name: &str,
    request: Request<Body>,
) -> (Response, Option<Caller>) {
    if !host_name::is_label(name) {
        return (port_host::no_sandbox().into_response(), None);
    }
    let local = match &shared.app.fleet {
        None => request,
        Some(joined) => {
            if let Err(failure) = refuse_reserved(&request) {
                return (failure.into_response(), None);
            }
            match links(shared, joined).by_host(name, request).await {
                Err(failure) => return (failure.into_response(), None),
                Ok(LinkAnswer::Elsewhere(response, caller)) => return (response, caller),
                Ok(LinkAnswer::Here(request)) => request,
            }
        }
    };
    port_host::answer(&shared.app, &shared.authenticator, name, local).await
}

/// Refuses what only nodes send.
pub(super) fn refuse_reserved(request: &Request<Body>) -> Result<(), ApiError> {
    let reserved = request.headers().contains_key(&PEER_HEAD);
    if reserved { Err(peer_head::reserved_header()) } else { Ok(()) }
}

pub(super) fn links<'a>(shared: &'a Shared, joined: &'a JoinedFleet) -> LinkRequests<'a> {
    let Shared { app, authenticator, not_found, .. } = shared;
    LinkRequests { app, joined, authenticator, not_found }
}

/// In a fleet: what another node does for a request before this node can answer it.
enum Prepared {
    /// This node answers. The caller is known if the request has a ticket of another node.
    Local(Request<Body>, Option<Box<Caller>>),
    /// The owner of the sandbox of a signed link has answered.
    Answered(Response),
}

async fn prepare(
    shared: &Shared,
    joined: &JoinedFleet,
    at: Arrival,
    request: Request<Body>,
) -> Result<Prepared, ApiError> {
    refuse_reserved(&request)?;
    let access = RouteAccess::of(request.method(), request.uri().path());
    if access == RouteAccess::SignedLink {
        origin::host(&shared.names, at, request.uri(), request.headers())?;
        return Ok(match links(shared, joined).by_path(request).await? {
            LinkAnswer::Here(request) => Prepared::Local(request, None),
            LinkAnswer::Elsewhere(response, _) => Prepared::Answered(response),
        });
    }
    let method = request.method();
    let uri = request.uri();
    let headers = request.headers();
    let Some(ticket) = tickets::ForeignTicket::of(joined, method, uri, headers) else {
        return Ok(Prepared::Local(request, None));
    };
    // A page of another site must not use up a ticket.
    origin::check(&shared.names, at, uri, headers)?;
    // Anyone can send a ticket, and the other node is asked for each.
    let network = Network::of_client(request.extensions().get());
    let turn = shared.not_found.lookup_turn(network).await;
    let caller = ticket.redeem(joined).await?;
    drop(turn);
    Ok(Prepared::Local(request, Some(Box::new(caller))))
}

/// Answers a request to the server itself. Also returns the caller when the request has a key.
async fn route(shared: &Shared, at: Arrival, request: Request<Body>) -> (Response, Option<Caller>) {
    let (mut request, redeemed) = match &shared.app.fleet {
        None => (request, None),
        Some(joined) => {
            let path = request.uri().path().to_owned();
            match prepare(shared, joined, at, request).await {
                Err(failure) => return (error_response(failure, &path), None),
                Ok(Prepared::Answered(response)) => return (response, None),
                Ok(Prepared::Local(request, redeemed)) => (request, redeemed),
            }
        }
    };
    let found = info_span!(target: TRACE_TARGET, "authenticate")
        .in_scope(|| admit(shared, at, &request, redeemed));
    let mut requester = None;
    match found {
        Err(failure) => return (error_response(failure, request.uri().path()), None),
        Ok(Admission::Public) => {}
        Ok(Admission::Key(caller)) => {
            trace::record_tenant(&caller.tenant);
            requester = Some(caller.clone());
            request.extensions_mut().insert(caller);
        }
        Ok(Admission::Link(link)) => drop(request.extensions_mut().insert(link)),
    }
    match shared.router.clone().oneshot(request).await {
        Ok(response) => (response, requester),
        Err(never) => match never {},
    }
}

/// How a request was authorised.
enum Admission {
    /// The route is public.
    Public,
    Key(Caller),
    Link(SignedLink),
}

/// Checks a request against the requirement of its route.
fn admit(
    shared: &Shared,
    at: Arrival,
    request: &Request<Body>,
    redeemed: Option<Box<Caller>>,
) -> Result<Admission, ApiError> {
    let method = request.method();
    let uri = request.uri();
    let headers = request.headers();
    let access = RouteAccess::of(method, uri.path());
    if access == RouteAccess::SignedLink {
        // A page below a link has an opaque origin, and every client that knows the path may use
        // it.
        origin::host(&shared.names, at, uri, headers)?;
        let token = port_link::token_in_path(uri.path()).unwrap_or_default();
        let app = &shared.app;
        let client = request.extensions().get();
        let link = port_link::verify(&app.service, &app.link_guesses, client, token)?;
        return link.map(Admission::Link).ok_or_else(port_link::bad_link);
    }
    origin::check(&shared.names, at, uri, headers)?;
    if access == RouteAccess::Public {
        return Ok(Admission::Public);
    }
    if access == RouteAccess::SignedUpload {
        return templates::authenticate(&shared.app, uri).map(Admission::Key);
    }
    let caller = match redeemed {
        Some(caller) => *caller,
        None => shared.authenticator.authenticate(access, method, uri, headers)?,
    };
    shared.not_found.check(&Requester::of(&caller), Instant::now())?;
    Ok(Admission::Key(caller))
}
