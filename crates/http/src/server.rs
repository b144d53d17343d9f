//! Connections: taken, bounded in time and size, answered, and ended with grace.
//!
//! HTTP/1.1 only: one request after the other on a connection, WebSocket by upgrade.

mod connection;
mod request;

use crate::{
    app::App,
    auth::{
        authenticator::Authenticator, cancellation::CancellationRegistry,
        not_found_limiter::NotFoundLimiter, origin::ServerNames, tickets::Tickets,
    },
    connection::{connections::Connections, upstream::UpstreamPool},
    limits::{limiter::Limiter, response_memory::ResponseMemory, settings::ConnectionLimits},
    mcp, router,
    server::request::Shared,
};
use isolet_sandbox::Service;
use socket2::TcpKeepalive;
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, watch},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

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
    pub names: ServerNames,
    /// Below this domain each port has a host name of its own; `None`: none has.
    pub ports_domain: Option<String>,
    /// A key for the tenant `default`, beside the stored ones.
    pub api_key: Option<String>,
    /// After so many requests within 10 s for what is not there, of one key, or with unknown keys from
    /// one address, more of them are refused; 0 for no bound. See [`crate::NOT_FOUND_LIMIT`].
    pub not_found_limit_per_10s: u32,
    /// How many connections there may be, and of which kinds.
    pub connections: ConnectionLimits,
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
    let authenticator = Authenticator::new(service.keys().clone(), own, Arc::clone(&tickets));
    let cancellations = CancellationRegistry::new(service.keys().clone(), stopped.clone());
    let looking = tokio::spawn(cancellations.clone().watch());
    let upstreams = Arc::<UpstreamPool>::default();
    let swept = Arc::clone(&upstreams);
    let sweeping = tokio::spawn(async move { swept.sweep().await });
    let ports_domain = options.ports_domain.map(|domain| Arc::from(domain.to_ascii_lowercase()));
    let response_memory = ResponseMemory::new(options.connections.answer_bytes);
    let app =
        App { service, cancellations, tickets, ports_domain, upstreams, limiter, response_memory };
    let not_found = Arc::new(NotFoundLimiter::new(options.not_found_limit_per_10s));
    let clients = CancellationToken::new();
    let router = router::router(app.clone());
    let router = mcp::with_mcp(router, &app, Arc::clone(&not_found), clients.clone());
    let shared = Arc::new(Shared { authenticator, names: options.names, router, app, not_found });
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

async fn accept(
    listener: &TcpListener,
    connections: &Connections,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    match listener.accept().await {
        // Only now: nobody is closed for a client that does not come.
        Ok((stream, _)) => Some((stream, connections.acquire_slot().await)),
        Err(error) => {
            warn!(%error, "no connection can be taken");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
