//! The server: accepts connections, limits them in time and size, answers their requests, and shuts
//! down gracefully.
//!
//! HTTP/1.1 only: one request after the other on a connection, WebSocket by upgrade.

mod connection;
mod data_plane;
mod handshake;
mod metrics_listener;
mod request;

use crate::app::App;
use crate::auth::authenticator::Authenticator;
use crate::auth::cancellation::CancellationRegistry;
use crate::auth::not_found_limiter::{LINK_GUESSES, NotFoundLimiter};
use crate::auth::origin::ServerNames;
use crate::auth::tickets::Tickets;
use crate::auth::trusted_proxies::TrustedProxies;
use crate::connection::connections::Connections;
use crate::connection::upstream::UpstreamPool;
use crate::fleet::Fleet;
use crate::fleet::joined::JoinedFleet;
use crate::forwarding::arrival::Arrivals;
use crate::forwarding::node_call::images::FleetImages;
use crate::limits::limiter::Limiter;
use crate::limits::memory_budget::MemoryBudget;
use crate::limits::settings::ConnectionLimits;
use crate::server::handshake::CurrentTls;
use crate::server::request::Shared;
use crate::{mcp, router};
use isolet_build::Builder;
use isolet_sandbox::Service;
use isolet_webhook::Webhooks;
use socket2::TcpKeepalive;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The pause after a failed accept: descriptors are exhausted, and become free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// TCP keepalive for silent clients: idle time, interval and number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);
/// How long a stopping server waits for requests in progress.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// The settings of the server.
pub struct Options {
    /// Host names and origins that are accepted in addition to the server's own.
    pub names: ServerNames,
    /// Below this domain each port has a host name of its own; `None`: ports have no host names.
    pub ports_domain: Option<String>,
    /// A key for the tenant `default`, in addition to the stored keys.
    pub api_key: Option<String>,
    /// The limit on 401 and 404 answers per key or address within 10 s; above it, requests get 429.
    /// 0 means no limit. See [`crate::NOT_FOUND_LIMIT`].
    pub not_found_limit_per_10s: u32,
    /// The limits on connections, in total and by kind.
    pub connections: ConnectionLimits,
    /// The TLS configuration of new connections, at any time; `None` serves plain HTTP.
    pub tls: Option<CurrentTls>,
    /// The reverse proxies whose `Forwarded` and `X-Forwarded-*` headers count.
    pub trusted_proxies: TrustedProxies,
    /// A listener that serves `/metrics` and nothing else, without a key.
    pub metrics: Option<TcpListener>,
    /// Builds of images.
    pub builder: Builder,
    /// Webhooks and their deliveries.
    pub webhooks: Webhooks,
    /// The fleet that this server is a node of; `None`: it serves all sandboxes itself.
    pub fleet: Option<Arc<dyn Fleet>>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is secret.
        f.debug_struct("Options").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Serves connections of `listener` until `stop` resolves, then waits up to 2 s for requests in
/// progress. Sandboxes keep running.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    options: Options,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    watch_clients(&listener, options.connections.stalled);
    let connections = Connections::new(options.connections.max);
    let metrics = Arc::clone(service.metrics());
    let refused = &metrics.requests.refused;
    let limiter = Arc::new(Limiter::new(options.connections, refused.clone()));
    let tickets = Arc::<Tickets>::default();
    let own = options.api_key.as_deref();
    let authenticator = Authenticator::new(service.keys().clone(), own, Arc::clone(&tickets));
    let cancellations = CancellationRegistry::new(service.keys().clone(), stopped.clone());
    let looking = tokio::spawn(cancellations.clone().watch());
    let upstreams = Arc::<UpstreamPool>::default();
    let swept = Arc::clone(&upstreams);
    let sweeping = tokio::spawn(async move { swept.sweep().await });
    let ports_domain = options.ports_domain.map(|domain| Arc::from(domain.to_ascii_lowercase()));
    let response_memory = MemoryBudget::new(options.connections.answer_bytes);
    let body_memory = MemoryBudget::new(options.connections.body_bytes);
    let app = App {
        service,
        builder: options.builder,
        webhooks: options.webhooks,
        cancellations,
        tickets,
        ports_domain,
        upstreams,
        link_guesses: Arc::new(NotFoundLimiter::new(LINK_GUESSES, refused.not_found.clone())),
        limiter,
        response_memory,
        body_memory,
        connections: Arc::clone(&connections),
        e2b_watchers: Arc::default(),
        fleet: options.fleet.map(|fleet| Arc::new(JoinedFleet::new(fleet))),
    };
    let not_found = options.not_found_limit_per_10s;
    let not_found = Arc::new(NotFoundLimiter::new(not_found, refused.not_found.clone()));
    let scraped = options
        .metrics
        .map(|listener| tokio::spawn(metrics_listener::serve(listener, app.clone())));
    let clients = CancellationToken::new();
    let router = router::router(app.clone());
    if let Some(joined) = &app.fleet {
        let arrivals = Arrivals {
            app: app.clone(),
            router: router.clone(),
            authenticator: authenticator.clone(),
        };
        let images = FleetImages::new(Arc::clone(&joined.fleet));
        app.service.set_image_peers(Arc::new(images));
        joined.fleet.serve(arrivals.into_handler());
    }
    let router = mcp::with_mcp(router, &app, Arc::clone(&not_found), clients.clone());
    let shared = Arc::new(Shared {
        authenticator,
        names: options.names,
        trusted_proxies: options.trusted_proxies,
        tls: options.tls,
        router,
        app,
        not_found,
    });
    tokio::pin!(stop);
    loop {
        tokio::select! {
            taken = accept(&listener, &connections) => {
                if let Some((stream, slot)) = taken {
                    let listed = connections.register(slot);
                    let shared = Arc::clone(&shared);
                    let stop = stopped.clone();
                    tokio::spawn(async move {
                        connection::serve(stream, shared, stop, listed.connection()).await;
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
    if tokio::time::timeout(STOP_WAIT, connections.drained()).await.is_err() {
        warn!(left = connections.count(), "connections did not end in time");
    }
    looking.abort();
    if let Some(scraped) = scraped {
        scraped.abort();
    }
    sweeping.abort();
}

/// Sets TCP options that connections inherit from their listener, so that the kernel closes the
/// connection of a client that acknowledges no data for `stalled`, or that has vanished.
fn watch_clients(listener: &TcpListener, stalled: Duration) {
    let (idle, pause, count) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(pause).with_retries(count);
    let socket = socket2::SockRef::from(listener);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(stalled).filter(|time| !time.is_zero()));
}

async fn accept(
    listener: &TcpListener,
    connections: &Connections,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    match listener.accept().await {
        // A slot is reserved only now, so that no idle connection is closed before a client has
        // connected.
        Ok((stream, _)) => Some((stream, connections.acquire_slot().await)),
        Err(error) => {
            warn!(%error, "cannot accept connections");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
