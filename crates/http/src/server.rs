//! Connections: taken, bounded in time and size, answered, and ended with grace.
//!
//! HTTP/1.1 only: one request after the other on a connection, WebSocket by upgrade.

use crate::{
    answers::AnswerMemory,
    auth::{Caller, Doors},
    connections::{Connection, Connections},
    console,
    dialects::cloudflare,
    error::Failure,
    gate::Gate,
    heads::{self, HEAD_BYTES_MAX, HEADERS_MAX},
    limits::{ConnectionLimits, Limiter},
    mcp,
    misses::{Misses, Who},
    origin::{self, Names},
    ports::{Foreign, Peer, host, links, links::Link, upstream::Upstreams},
    routes,
    tickets::Tickets,
    until::Leases,
};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use isolet_sandbox::Service;
use socket2::TcpKeepalive;
use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, watch},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::{debug, error, info, warn};

/// How long a new connection may take over its first request's head.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// How long a kept connection may be silent: longer than clients keep theirs (60 s).
const IDLE_WAIT: Duration = Duration::from_secs(75);
/// Read of one connection before it is taken: a head, and a body's first part.
const READ_BYTES_MAX: usize = HEAD_BYTES_MAX;
/// What the kernel holds for one client beyond what is on its way to it. Without this it is up to
/// 4 MB, and a thousand clients that do not read take the memory that all TCP of the machine has.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;
/// The pause when no connection can be taken: descriptors are short, and come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// When the kernel asks a silent client whether it is still there: after so long, so often, and so
/// many times in vain.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);
/// How long a stopping server waits for what it answers.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// How the server is to answer.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Names and origins beside its own.
    pub names: Names,
    /// Below this domain each port has a host name of its own; `None`: none has.
    pub ports_domain: Option<String>,
    /// A key for the tenant `default`, beside the stored ones.
    pub api_key: Option<String>,
    /// After so many requests within 10 s for what is not there, of one key, or with unknown keys from
    /// one address, more of them are refused; 0 for no bound. See [`crate::MISSES_MAX`].
    pub misses_max: u32,
    /// How many connections there may be, and of which kinds.
    pub connections: ConnectionLimits,
}

/// What every route needs.
#[derive(Clone)]
pub(crate) struct App {
    /// All sandboxes.
    pub(crate) service: Service,
    /// What ends a long answer.
    pub(crate) leases: Leases,
    /// What opens sockets from pages.
    pub(crate) tickets: Arc<Tickets>,
    /// As [`Options::ports_domain`].
    pub(crate) ports_domain: Option<Arc<str>>,
    /// Connections to ports that idle.
    pub(crate) upstreams: Arc<Upstreams>,
    /// Counts the requests of each tenant.
    pub(crate) limiter: Arc<Limiter>,
    /// For answers that are made whole.
    pub(crate) answers: Arc<AnswerMemory>,
}

struct Shared {
    doors: Doors,
    names: Names,
    router: Router,
    app: App,
    misses: Arc<Misses>,
}

/// Answers on `listener` until `stop` ends, then lets what runs come to an end (2 s at most).
/// Sandboxes stay.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    options: Options,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    watch_clients(&listener, options.connections.stalled);
    let connections = Connections::new(options.connections.max);
    let limiter = Arc::new(Limiter::new(options.connections));
    let tickets = Arc::<Tickets>::default();
    let own = options.api_key.as_deref();
    let doors = Doors::new(service.keys().clone(), own, Arc::clone(&tickets));
    let leases = Leases::new(service.keys().clone(), stopped.clone());
    let looking = tokio::spawn(leases.clone().watch());
    let upstreams = Arc::<Upstreams>::default();
    let swept = Arc::clone(&upstreams);
    let sweeping = tokio::spawn(async move { swept.sweep().await });
    let ports_domain = options.ports_domain.map(|domain| Arc::from(domain.to_ascii_lowercase()));
    let answers = AnswerMemory::new(options.connections.answer_bytes);
    let app = App { service, leases, tickets, ports_domain, upstreams, limiter, answers };
    let misses = Arc::new(Misses::new(options.misses_max));
    let clients = CancellationToken::new();
    let router = routes::router(app.clone());
    let router = mcp::beside(router, &app, Arc::clone(&misses), clients.clone());
    let shared = Arc::new(Shared { doors, names: options.names, router, app, misses });
    tokio::pin!(stop);
    loop {
        tokio::select! {
            taken = take(&listener, &connections) => {
                if let Some((stream, room)) = taken {
                    let listed = connections.add(room);
                    let shared = Arc::clone(&shared);
                    let stop = stopped.clone();
                    tokio::spawn(async move {
                        connection(stream, shared, stop, listed.connection()).await;
                    });
                }
            }
            () = &mut stop => break,
        }
    }
    drop(listener);
    info!(connections = connections.count(), "stopping");
    let _ = stopping.send(true);
    clients.cancel();
    if tokio::time::timeout(STOP_WAIT, connections.ended()).await.is_err() {
        warn!(left = connections.count(), "connections did not end in time");
    }
    looking.abort();
    sweeping.abort();
}

/// Lets the kernel look after clients: connections inherit what their listener is set to. A client
/// that takes nothing for `stalled` loses its connection, and so does one that is gone unnoticed.
fn watch_clients(listener: &TcpListener, stalled: Duration) {
    let (idle, pause, count) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(pause).with_retries(count);
    let socket = socket2::SockRef::from(listener);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(stalled).filter(|time| !time.is_zero()));
}

async fn take(
    listener: &TcpListener,
    connections: &Connections,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    match listener.accept().await {
        // Only now: nobody is closed for a client that does not come.
        Ok((stream, _)) => Some((stream, connections.room().await)),
        Err(error) => {
            warn!(%error, "no connection can be taken");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(
    stream: TcpStream,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
    own: &Arc<Connection>,
) {
    // An answer is one write: waiting for more of it would only cost time.
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let service = service_fn(|request: Request<Incoming>| {
        own.spoke();
        let shared = Arc::clone(&shared);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Arc::clone(own));
        async move { Ok::<_, Infallible>(answer(&shared, (local, peer), request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_WAIT)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(READ_BYTES_MAX)
        .serve_connection(TokioIo::new(Gate::new(stream)), service)
        .with_upgrades();
    tokio::pin!(served);
    let first = tokio::time::sleep(HEAD_WAIT);
    tokio::pin!(first);
    let mut waiting = true;
    let stopping = async {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::pin!(stopping);
    let unneeded = own.unneeded();
    tokio::pin!(unneeded);
    let mut asked = false;
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    debug!(%error, "connection ended");
                }
                return;
            }
            () = &mut first, if waiting => {
                if !own.has_spoken() {
                    return;
                }
                waiting = false;
            }
            () = &mut unneeded => return,
            () = &mut stopping, if !asked => {
                asked = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn answer(
    shared: &Shared,
    (local, peer): (SocketAddr, SocketAddr),
    mut request: Request<Body>,
) -> Response {
    let began = Instant::now();
    let (method, path) = (request.method().clone(), shown(request.uri()));
    let last = heads::last(request.headers());
    let domain = shared.app.ports_domain.as_deref();
    let name = domain.and_then(|domain| host::of(domain, request.headers()));
    request.extensions_mut().insert(Peer(peer.ip()));
    let answered = async {
        match name {
            Some(name) => host::answer((&shared.app, &shared.doors), &name, request).await,
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

/// A refusal, in the words of the dialect that was asked.
pub(crate) fn refused(failure: Failure, path: &str) -> Response {
    if cloudflare::owns(path) {
        return cloudflare::Refusal::from(failure).into_response();
    }
    failure.into_response()
}

/// A path as it may be written down: without what is itself a right.
fn shown(uri: &Uri) -> String {
    if uri.path().starts_with(links::UNDER) {
        return format!("{}…", links::UNDER);
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
    if let Some(token) = links::of_path(uri.path()) {
        // A page below a link has the origin of nobody; who knows the path has the right to it.
        origin::host(&shared.names, local, uri, headers)?;
        let service = &shared.app.service;
        return links::open(service, token).map(Entered::Link).ok_or_else(links::bad_link);
    }
    origin::check(&shared.names, local, uri, headers)?;
    if uri.path() == "/health" || console::public(uri.path()) {
        return Ok(Entered::Anybody);
    }
    let caller = shared.doors.check(method, uri, headers)?;
    shared.misses.admit(&Who::of(&caller), Instant::now())?;
    Ok(Entered::Key(caller))
}
