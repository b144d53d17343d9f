//! One request: whether it is meant for this server, whose it is, and its answer.

use crate::{
    app::App,
    auth::{
        authenticator::Doors,
        caller::Caller,
        not_found_limiter::{Misses, Who},
        origin::{self, Names},
        port_link::{self, Link},
    },
    connection::head_scanner,
    console,
    dialects::refused,
    foundation::{
        error::Failure,
        extensions::{Foreign, Peer},
    },
    proxy::{host_name, port_host},
};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use std::{net::SocketAddr, panic::AssertUnwindSafe, sync::Arc, time::Instant};
use tower::ServiceExt;
use tracing::{debug, error};

pub(super) struct Shared {
    pub(super) doors: Doors,
    pub(super) names: Names,
    pub(super) router: Router,
    pub(super) app: App,
    pub(super) misses: Arc<Misses>,
}

pub(super) async fn answer(
    shared: &Shared,
    (local, peer): (SocketAddr, SocketAddr),
    mut request: Request<Body>,
) -> Response {
    let began = Instant::now();
    let (method, path) = (request.method().clone(), shown(request.uri()));
    let last = head_scanner::last(request.headers());
    let domain = shared.app.ports_domain.as_deref();
    let name = domain.and_then(|domain| host_name::of(domain, request.headers()));
    request.extensions_mut().insert(Peer(peer.ip()));
    let answered = async {
        match name {
            Some(name) => port_host::answer((&shared.app, &shared.doors), &name, request).await,
            None => routed(shared, local, request).await,
        }
    };
    let (mut response, who) =
        AssertUnwindSafe(answered).catch_unwind().await.unwrap_or_else(|_| {
            error!(%method, path, "a handler panicked");
            let hint = "only this call suffers; look at the server's log";
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            (Failure::new(status, "fault", "internal fault", hint).into_response(), None)
        });
    let foreign = response.extensions().get::<Foreign>().copied();
    if foreign.is_none()
        && let Err(failure) = miss(shared, peer, response.status(), who)
    {
        response = refused(failure, &path);
    }
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    if last && !switched {
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    }
    if !foreign.is_some_and(|foreign| foreign.own_origin) {
        headers.insert("x-content-type-options", header::HeaderValue::from_static("nosniff"));
    }
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    debug!(%method, path, status = response.status().as_u16(), ms, "answered");
    response
}

/// A path as it may be written down: without what is itself a right.
fn shown(uri: &Uri) -> String {
    if uri.path().starts_with(port_link::UNDER) {
        return format!("{}…", port_link::UNDER);
    }
    uri.path().to_owned()
}

/// Counts what was asked for and is not there; who has asked for too much of it is told to wait.
fn miss(
    shared: &Shared,
    peer: SocketAddr,
    status: StatusCode,
    who: Option<Caller>,
) -> Result<(), Failure> {
    let now = Instant::now();
    let who = match who {
        Some(caller) => Who::of(&caller),
        None if status == StatusCode::UNAUTHORIZED => {
            let who = Who::Address(peer.ip());
            shared.misses.admit(&who, now)?;
            who
        }
        None => return Ok(()),
    };
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED) {
        shared.misses.count(who, now);
    }
    Ok(())
}

/// A request to the server itself; beside its answer who asked with a key.
async fn routed(
    shared: &Shared,
    local: SocketAddr,
    mut request: Request<Body>,
) -> (Response, Option<Caller>) {
    let found = checked(shared, local, request.method(), request.uri(), request.headers());
    let mut who = None;
    match found {
        Err(failure) => return (refused(failure, request.uri().path()), None),
        Ok(Entered::Anybody) => {}
        Ok(Entered::Key(caller)) => {
            who = Some(caller.clone());
            request.extensions_mut().insert(caller);
        }
        Ok(Entered::Link(link)) => drop(request.extensions_mut().insert(link)),
    }
    match shared.router.clone().oneshot(request).await {
        Ok(response) => (response, who),
        Err(never) => match never {},
    }
}

/// By what somebody came in.
enum Entered {
    /// Where no key is needed.
    Anybody,
    Key(Caller),
    Link(Link),
}

/// Who calls.
fn checked(
    shared: &Shared,
    local: SocketAddr,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Entered, Failure> {
    if let Some(token) = port_link::of_path(uri.path()) {
        // A page below a link has the origin of nobody; who knows the path has the right to it.
        origin::host(&shared.names, local, uri, headers)?;
        let service = &shared.app.service;
        return port_link::open(service, token).map(Entered::Link).ok_or_else(port_link::bad_link);
    }
    origin::check(&shared.names, local, uri, headers)?;
    if uri.path() == "/health" || console::public(uri.path()) {
        return Ok(Entered::Anybody);
    }
    let caller = shared.doors.check(method, uri, headers)?;
    shared.misses.admit(&Who::of(&caller), Instant::now())?;
    Ok(Entered::Key(caller))
}
