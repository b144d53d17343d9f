//! Sends requests to other nodes.

pub(crate) mod owner_leases;

use axum::body::Body;
use hyper::header::HOST;
use hyper::http::HeaderValue;
use hyper::{Request, Response, StatusCode};
use isolet_http::fleet::{FleetFuture, Peer, PeerResponse, SendFailure, TunnelIo};
use isolet_peer::transport::PoolLimits;
use isolet_peer::{PeerError, PeerPool, PeerTls, SendError};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the addresses of a host name are used.
const RESOLVED_FOR: Duration = Duration::from_secs(10);
/// How long the resolution of a host name may take.
const RESOLVE_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of remembered addresses: that of nodes. When there are more, all are forgotten.
const RESOLVED_MAX: usize = isolet_cluster::model::NODES_MAX;
/// How long a node without a lease may take to accept a connection. It may be cut off from etcd only,
/// but most probably it does not run.
const LOST_WAIT: Duration = Duration::from_secs(1);

/// Connections to other nodes.
pub(crate) struct Outgoing {
    pool: PeerPool<Body>,
    resolved: Mutex<HashMap<Arc<str>, Resolved>>,
}

#[derive(Clone, Copy)]
struct Resolved {
    address: SocketAddr,
    at: Instant,
}

/// A request that got no response.
pub(crate) struct Unsent {
    pub(crate) failure: SendFailure,
    /// Whether the node could not be reached, so that no new sandboxes should be placed on it.
    pub(crate) is_suspect: bool,
}

impl Outgoing {
    pub(crate) fn new(tls: PeerTls) -> Self {
        let pool = PeerPool::new(tls, PoolLimits::default());
        Self { pool, resolved: Mutex::default() }
    }

    /// Sends a request. `is_lost`: the lease of the node has ended.
    ///
    /// # Errors
    /// [`Unsent`].
    pub(crate) async fn send(
        &self,
        peer: &Peer,
        is_lost: bool,
        mut request: Request<Body>,
    ) -> Result<PeerResponse, Unsent> {
        let unreachable =
            |reason: String| Unsent { failure: SendFailure::Unreachable(reason), is_suspect: true };
        let address = self.resolve(&peer.address).await.map_err(|error| {
            unreachable(format!("its address {:?} has no host: {error}", peer.address))
        })?;
        if is_lost && !matches!(timeout(LOST_WAIT, TcpStream::connect(address)).await, Ok(Ok(_))) {
            return Err(unreachable(format!("its lease has ended, and {address} does not answer")));
        }
        let headers = request.headers_mut();
        if !headers.contains_key(HOST) {
            headers.insert(HOST, HeaderValue::from_static("node"));
        }
        let sent = self.pool.send(&peer.node, address, request).await;
        let response = sent.map_err(|SendError { error, unsent }| {
            let reason = error.to_string();
            if unsent.is_none() {
                return Unsent { failure: SendFailure::Lost(reason), is_suspect: false };
            }
            let is_suspect = !matches!(error, PeerError::Busy { .. });
            Unsent { failure: SendFailure::Unreachable(reason), is_suspect }
        })?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            let response = Response::from_parts(head, Body::new(body));
            return Ok(PeerResponse { response, tunnel: None });
        }
        let tunnel: FleetFuture<'static, io::Result<Box<dyn TunnelIo>>> = Box::pin(async move {
            let tunnel = body.into_tunnel().await.map_err(io::Error::other)?;
            Ok(Box::new(tunnel) as Box<dyn TunnelIo>)
        });
        let response = Response::from_parts(head, Body::empty());
        Ok(PeerResponse { response, tunnel: Some(tunnel) })
    }

    /// The address of `HOST:PORT`.
    async fn resolve(&self, text: &Arc<str>) -> io::Result<SocketAddr> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let known = self.lock().get(text).copied();
        if let Some(known) = known.filter(|known| known.at.elapsed() < RESOLVED_FOR) {
            return Ok(known.address);
        }
        let found = timeout(RESOLVE_WAIT, tokio::net::lookup_host(&**text)).await;
        let found = found.map_err(|_| io::Error::from(io::ErrorKind::TimedOut)).flatten();
        let none = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        match (found.and_then(|mut all| all.next().ok_or_else(none)), known) {
            (Ok(address), _) => {
                let mut resolved = self.lock();
                if resolved.len() >= RESOLVED_MAX {
                    resolved.clear();
                }
                resolved.insert(Arc::clone(text), Resolved { address, at: Instant::now() });
                Ok(address)
            }
            // A name server that does not answer does not stop nodes that are known.
            (Err(_), Some(known)) => Ok(known.address),
            (Err(error), None) => Err(error),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Resolved>> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
