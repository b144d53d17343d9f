//! The listener for connections of peers.
//!
//! Anyone who reaches the address can open a connection, so handshakes have limits: of their
//! number, and of the time of each. When all places are taken, the oldest handshake is given up. A
//! peer needs some milliseconds, so its handshake ends before many slow ones have pushed it out.

use crate::tls::{HandshakeError, PeerStream, PeerTls};
use crate::transport::socket;
use isolet_wire::node::NodeName;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;
use tracing::warn;

/// The most connections that wait for [`PeerListener::accept`].
const ACCEPTED_MAX: usize = 64;
/// The pause after a failure to accept, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The least time between two log messages on refused connections, which anyone can cause.
const REFUSED_LOG: Duration = Duration::from_secs(10);

/// Limits of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ListenerLimits {
    /// The most handshakes at once.
    pub handshakes: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// The most connections of one node.
    pub connections_per_node: usize,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            // About 20 KiB each.
            handshakes: 256,
            handshake: Duration::from_secs(5),
            // More than the requests and the idle connections of a pool.
            connections_per_node: 8192 + 256,
        }
    }
}

/// Accepts connections of peers. Dropping it closes the address, and handshakes that are under way.
pub struct PeerListener {
    accepted: mpsc::Receiver<PeerStream>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl fmt::Debug for PeerListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerListener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl PeerListener {
    /// Listens on an address.
    ///
    /// # Errors
    /// The address cannot be used.
    pub async fn bind(
        address: SocketAddr,
        tls: PeerTls,
        limits: ListenerLimits,
    ) -> io::Result<Self> {
        Self::new(TcpListener::bind(address).await?, tls, limits)
    }

    /// Accepts connections from a socket that listens.
    ///
    /// # Errors
    /// The socket has no address.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn new(listener: TcpListener, tls: PeerTls, limits: ListenerLimits) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, accepted) = mpsc::channel(ACCEPTED_MAX);
        let acceptor = Acceptor { tls, limits, sender };
        let accepting = tokio::spawn(acceptor.run(listener));
        Ok(Self { accepted, address, accepting })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, and the node that opened it. It may be cancelled without losing one.
    /// `None` after the task that accepts has panicked.
    pub async fn accept(&mut self) -> Option<(NodeName, PeerStream)> {
        let stream = self.accepted.recv().await?;
        Some((stream.node().clone(), stream))
    }
}

struct Acceptor {
    tls: PeerTls,
    limits: ListenerLimits,
    sender: mpsc::Sender<PeerStream>,
}

/// A connection that was refused.
struct Refused {
    address: SocketAddr,
    reason: HandshakeError,
}

impl Acceptor {
    async fn run(self, listener: TcpListener) {
        let mut handshakes: JoinSet<Result<(), Refused>> = JoinSet::new();
        let mut order: VecDeque<AbortHandle> = VecDeque::new();
        let mut log = RefusedLog::default();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((tcp, address)) => {
                        if order.len() >= self.limits.handshakes && let Some(oldest) = order.pop_front() {
                            oldest.abort();
                        }
                        order.push_back(handshakes.spawn(self.handshake(tcp, address)));
                    }
                    Err(error) => {
                        warn!(%error, "cannot accept a connection of another node");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(ended) = handshakes.join_next() => {
                    order.retain(|handshake| !handshake.is_finished());
                    if let Ok(Err(refused)) = ended {
                        log.add(&refused);
                    }
                }
            }
        }
    }

    fn handshake(
        &self,
        tcp: TcpStream,
        address: SocketAddr,
    ) -> impl Future<Output = Result<(), Refused>> + Send + 'static {
        let tls = self.tls.clone();
        let sender = self.sender.clone();
        let limits = self.limits;
        async move {
            let refused = |reason| Refused { address, reason };
            socket::configure(&tcp).map_err(|error| refused(error.into()))?;
            let handshake = tls.accept(tcp, limits.connections_per_node);
            let accepted = timeout(limits.handshake, handshake).await;
            let accepted = accepted.unwrap_or(Err(HandshakeError::Timeout));
            let stream = accepted.map_err(refused)?;
            // Fails only when the listener is dropped.
            let _ = sender.send(stream).await;
            Ok(())
        }
    }
}

/// Logs refused connections, a few of them when there are many.
#[derive(Default)]
struct RefusedLog {
    last: Option<Instant>,
    unlogged: u64,
}

impl RefusedLog {
    fn add(&mut self, refused: &Refused) {
        if self.last.is_some_and(|last| last.elapsed() < REFUSED_LOG) {
            self.unlogged += 1;
            return;
        }
        let Refused { address, reason } = refused;
        warn!(%address, %reason, unlogged = self.unlogged, "a connection to the address for other nodes was refused");
        self.last = Some(Instant::now());
        self.unlogged = 0;
    }
}
