//! Connections: taken, bounded in time and size, answered, and ended with grace.
//!
//! HTTP/1.1 only: one request after the other on a connection, WebSocket by upgrade.

use crate::{
    auth::{Caller, Doors},
    console,
    dialects::cloudflare,
    error::Failure,
    gate::Gate,
    heads::{self, HEAD_BYTES_MAX, HEADERS_MAX},
    mcp,
    misses::{Misses, Who},
    origin::{self, Names},
    ports::{Foreign, Peer, upstream::Upstreams},
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
use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
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
/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 20_000;
/// The pause when no connection can be taken: descriptors are short, and come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a stopping server waits for what it answers.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// How the server is to answer.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Names and origins beside its own.
    pub names: Names,
    /// A key for the tenant `default`, beside the stored ones.
    pub api_key: Option<String>,
    /// After so many requests within 10 s for what is not there, of one key, or with unknown keys from
    /// one address, more of them are refused; 0 for no bound. See [`crate::MISSES_MAX`].
    pub misses_max: u32,
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
    /// Connections to ports that idle.
    pub(crate) upstreams: Arc<Upstreams>,
    /// Held by everything that outlives its request.
    pub(crate) alive: Arc<Semaphore>,
}

impl App {
    /// A place among the server's connections, for what outlives its request.
    pub(crate) fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.alive).try_acquire_owned().map_err(|_| {
            let (what, hint) = ("too many connections", "close a connection first");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "server_full", what, hint)
        })
    }
}

struct Shared {
    doors: Doors,
    names: Names,
    router: Router,
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
    let alive = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let tickets = Arc::<Tickets>::default();
    let own = options.api_key.as_deref();
    let doors = Doors::new(service.keys().clone(), own, Arc::clone(&tickets));
    let leases = Leases::new(service.keys().clone(), stopped.clone());
    let looking = tokio::spawn(leases.clone().watch());
    let upstreams = Arc::<Upstreams>::default();
    let swept = Arc::clone(&upstreams);
    let sweeping = tokio::spawn(async move { swept.sweep().await });
    let app = App { service, leases, tickets, upstreams, alive: Arc::clone(&alive) };
    let misses = Arc::new(Misses::new(options.misses_max));
    let clients = CancellationToken::new();
    let router = mcp::beside(routes::router(app), Arc::clone(&misses), clients.clone());
    let shared = Arc::new(Shared { doors, names: options.names, router, misses });
    tokio::pin!(stop);
    loop {
        tokio::select! {
            taken = take(&listener, &alive) => {
                if let Some((stream, permit)) = taken {
                    tokio::spawn(connection(stream, Arc::clone(&shared), stopped.clone(), permit));
                }
            }
            () = &mut stop => break,
        }
    }
    drop(listener);
    info!(connections = CONNECTIONS_MAX - alive.available_permits(), "stopping");
    let _ = stopping.send(true);
    clients.cancel();
    let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
    if tokio::time::timeout(STOP_WAIT, alive.acquire_many(all)).await.is_err() {
        let left = CONNECTIONS_MAX - alive.available_permits();
        warn!(left, "connections did not end in time");
    }
    looking.abort();
    sweeping.abort();
}

async fn take(
    listener: &TcpListener,
    alive: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(alive).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
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
    _permit: OwnedSemaphorePermit,
) {
    // An answer is one write: waiting for more of it would only cost time.
    let _ = stream.set_nodelay(true);
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let spoke = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request: Request<Incoming>| {
        spoke.store(true, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
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
                if !spoke.load(Ordering::Relaxed) {
                    return;
                }
                waiting = false;
            }
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
    request: Request<Incoming>,
) -> Response {
    let began = Instant::now();
    let mut who = None;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let last = heads::last(request.headers());
    let mut response =
        match checked(shared, (local, peer), request.method(), request.uri(), request.headers()) {
            Err(failure) if cloudflare::owns(&path) => {
                cloudflare::Refusal::from(failure).into_response()
            }
            Err(failure) => failure.into_response(),
            Ok(caller) => {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(Peer(peer.ip()));
                if let Some(caller) = caller {
                    who = Some(caller.clone());
                    request.extensions_mut().insert(caller);
                }
                let routed = shared.router.clone().oneshot(request);
                match AssertUnwindSafe(routed).catch_unwind().await {
                    Ok(Ok(response)) => response,
                    Ok(Err(never)) => match never {},
                    Err(_) => {
                        error!(%method, path, "a handler panicked");
                        let hint = "only this call suffers; look at the server's log";
                        let status = StatusCode::INTERNAL_SERVER_ERROR;
                        Failure::new(status, "fault", "internal fault", hint).into_response()
                    }
                }
            }
        };
    let foreign = response.extensions().get::<Foreign>().copied();
    let missed = matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED)
        && foreign.is_none();
    if let Some(caller) = who.filter(|_| missed) {
        shared.misses.count(Who::of(&caller), Instant::now());
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

/// Who calls; `None` where no key is needed.
fn checked(
    shared: &Shared,
    (local, peer): (SocketAddr, SocketAddr),
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Caller>, Failure> {
    origin::check(&shared.names, local, uri, headers)?;
    if uri.path() == "/health" || console::public(uri.path()) {
        return Ok(None);
    }
    let (now, misses) = (Instant::now(), &shared.misses);
    match shared.doors.check(method, uri, headers) {
        Ok(caller) => misses.admit(&Who::of(&caller), now).map(|()| Some(caller)),
        Err(failure) if failure.status() == StatusCode::UNAUTHORIZED => {
            let who = Who::Address(peer.ip());
            misses.admit(&who, now)?;
            misses.count(who, now);
            Err(failure)
        }
        Err(failure) => Err(failure),
    }
}
