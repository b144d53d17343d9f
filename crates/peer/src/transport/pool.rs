//! The pool of connections to peers.

use crate::tls::{HandshakeError, PeerTls};
use crate::transport::body::PeerBody;
use crate::transport::connection::{PeerConnection, RequestBody};
use crate::transport::error::{PeerError, SendError};
use crate::transport::idle::IdleConnections;
use crate::transport::socket;
use hyper::{Request, Response};
use isolet_wire::node::NodeName;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};

/// How often connections that have been idle for too long are closed.
const SWEEP: Duration = Duration::from_secs(1);

/// Limits of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// How long a connection may take, from the first packet to the end of the TLS handshake, and
    /// how long a request waits for its turn.
    pub connect: Duration,
    /// How long a connection may be idle.
    pub idle: Duration,
    /// How long a connection is used for further requests, so that it does not outlast a renewal of
    /// the certificates with which it began by much.
    pub age: Duration,
    /// The most idle connections of one node.
    pub idle_per_node: usize,
    /// The most idle connections of all nodes.
    pub idle_connections: usize,
    /// The most requests and tunnels of one node that are under way.
    pub requests_per_node: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            // Twenty times a round trip over the longest distance, which a handshake needs twice.
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            age: Duration::from_secs(600),
            idle_per_node: 64,
            idle_connections: 1024,
            // Each shell and terminal over WebSocket is one.
            requests_per_node: 8192,
        }
    }
}

/// How much a pool is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// Idle connections.
    pub idle: usize,
    /// Requests and tunnels that are under way.
    pub in_use: usize,
}

/// Connections to peers that are kept for further requests. `B` is the body of requests.
pub struct PeerPool<B: RequestBody + Send> {
    shared: Arc<PoolState<B>>,
    sweeping: JoinHandle<()>,
}

/// What the pool and the bodies of its responses have in common.
pub(super) struct PoolState<B: RequestBody> {
    tls: PeerTls,
    limits: PoolLimits,
    idle: IdleConnections<B>,
}

impl<B: RequestBody + Send> fmt::Debug for PeerPool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerPool").field("use", &self.in_use()).finish_non_exhaustive()
    }
}

impl<B: RequestBody + Send> Drop for PeerPool<B> {
    fn drop(&mut self) {
        self.sweeping.abort();
    }
}

impl<B: RequestBody> PoolState<B> {
    /// Keeps a connection for the next request.
    pub(super) fn put(&self, node: &NodeName, connection: PeerConnection<B>) {
        self.idle.put(node, &self.tls.identity().own.serial, connection);
    }
}

impl<B: RequestBody + Send> PeerPool<B> {
    /// A pool without connections.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn new(tls: PeerTls, limits: PoolLimits) -> Self {
        let shared = Arc::new(PoolState { tls, limits, idle: IdleConnections::new(limits) });
        let sweeping = tokio::spawn(sweep(Arc::downgrade(&shared)));
        Self { shared, sweeping }
    }

    /// How much the pool is used.
    #[must_use]
    pub fn in_use(&self) -> PoolUse {
        let (idle, in_use) = self.shared.idle.count();
        PoolUse { idle, in_use }
    }

    /// Sends a request to a node at an address, and returns the head of the response and its body,
    /// which is read from the node only as fast as the caller reads it. The request has a path as
    /// its URI, and the header `Host`. There is no time limit for the response: dropping the
    /// future or the body ends the request, and the node notices.
    ///
    /// A request that finds its idle connection closed is sent on another one, if nothing of it
    /// was sent.
    ///
    /// # Errors
    /// [`SendError`], with the request if nothing of it was sent.
    pub async fn send(
        &self,
        node: &NodeName,
        address: SocketAddr,
        mut request: Request<B>,
    ) -> Result<Response<PeerBody<B>>, SendError<B>> {
        let permit = match self.permit(node).await {
            Ok(permit) => permit,
            Err(error) => return Err(unsent(error, request)),
        };
        loop {
            let serial = self.shared.tls.identity().own.serial.clone();
            let idle = self.shared.idle.take(node, address, &serial);
            let fresh = idle.is_none();
            let connection = match idle {
                Some(connection) => connection,
                None => match self.connect(node, address).await {
                    Ok(connection) => connection,
                    Err(error) => return Err(unsent(error, request)),
                },
            };
            let lost = match connection.send(request).await {
                Ok((response, connection)) => {
                    let (head, incoming) = response.into_parts();
                    let pool = Arc::clone(&self.shared);
                    let body = PeerBody::new(&head, incoming, connection, pool, permit);
                    return Ok(Response::from_parts(head, body));
                }
                Err(lost) => lost,
            };
            match lost.unsent {
                Some(again) if !fresh => request = again,
                unsent => {
                    let node = node.clone();
                    let error = PeerError::Lost { node, reused: lost.reused, source: lost.error };
                    return Err(SendError { error, unsent: unsent.map(Box::new) });
                }
            }
        }
    }

    /// Waits for a place among the requests of a node.
    async fn permit(&self, node: &NodeName) -> Result<OwnedSemaphorePermit, PeerError> {
        let limits = &self.shared.limits;
        let permit = self.shared.idle.permits(node).acquire_owned();
        match timeout(limits.connect, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => {
                Err(PeerError::Busy { node: node.clone(), limit: limits.requests_per_node })
            }
        }
    }

    async fn connect(
        &self,
        node: &NodeName,
        address: SocketAddr,
    ) -> Result<PeerConnection<B>, PeerError> {
        let after = self.shared.limits.connect;
        match timeout(after, self.connect_within(node, address)).await {
            Ok(connected) => connected,
            Err(_) => Err(PeerError::Timeout { node: node.clone(), address, after }),
        }
    }

    async fn connect_within(
        &self,
        node: &NodeName,
        address: SocketAddr,
    ) -> Result<PeerConnection<B>, PeerError> {
        let failed = |source| PeerError::Connect { node: node.clone(), address, source };
        let tcp = TcpStream::connect(address).await.map_err(failed)?;
        socket::configure(&tcp).map_err(failed)?;
        let refused =
            |source: HandshakeError| PeerError::Handshake { node: node.clone(), address, source };
        let connection = self.shared.tls.connect(tcp, node).await.map_err(refused)?;
        PeerConnection::open(connection, address).await.map_err(|source| PeerError::Lost {
            node: node.clone(),
            reused: false,
            source,
        })
    }
}

fn unsent<B>(error: PeerError, request: Request<B>) -> SendError<B> {
    SendError { error, unsent: Some(Box::new(request)) }
}

/// Closes idle connections until the pool is dropped.
async fn sweep<B: RequestBody + Send>(pool: Weak<PoolState<B>>) {
    let mut clock = tokio::time::interval(SWEEP);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        pool.idle.sweep(&pool.tls.identity().own.serial);
    }
}
