//! All open connections, so that each can be closed when its certificate is no longer valid.

use crate::parsed::Leaf;
use crate::tls::error::HandshakeError;
use crate::tls::identity::{Identity, Side};
use futures_util::task::AtomicWaker;
use isolet_wire::node::NodeName;
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::{info, warn};

/// One connection.
pub(crate) struct LinkState {
    pub(crate) node: NodeName,
    side: Side,
    chain: Vec<CertificateDer<'static>>,
    expires_at_s: i64,
    closed: AtomicBool,
    /// The tasks that wait for the connection.
    pub(super) reader: AtomicWaker,
    pub(super) writer: AtomicWaker,
}

impl LinkState {
    /// Whether the certificate of the peer is no longer valid.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
    }
}

/// The current identity, and the connections that were verified by it.
pub(crate) struct Links(Mutex<Table>);

struct Table {
    identity: Arc<Identity>,
    open: HashMap<u64, Arc<LinkState>>,
    /// Incoming connections of each node that has any.
    incoming: HashMap<NodeName, usize>,
    next: u64,
}

/// A connection in the table, until it is dropped.
pub(crate) struct Link {
    pub(crate) state: Arc<LinkState>,
    id: u64,
    links: Arc<Links>,
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut table = self.links.lock();
        if table.open.remove(&self.id).is_some() && self.state.side == Side::Incoming {
            table.release(&self.state.node);
        }
    }
}

impl Table {
    fn release(&mut self, node: &NodeName) {
        if let Some(count) = self.incoming.get_mut(node) {
            *count -= 1;
            if *count == 0 {
                self.incoming.remove(node);
            }
        }
    }
}

impl Links {
    pub(super) fn new(identity: Identity) -> Self {
        Self(Mutex::new(Table {
            identity: Arc::new(identity),
            open: HashMap::new(),
            incoming: HashMap::new(),
            next: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.lock().identity)
    }

    /// Adds a connection whose handshake was made with `used`. `limit` is the maximum number of
    /// incoming connections of its node.
    pub(super) fn register(
        links: &Arc<Self>,
        used: &Arc<Identity>,
        peer: VerifiedPeer,
        limit: usize,
    ) -> Result<Link, HandshakeError> {
        let VerifiedPeer { side, leaf, chain } = peer;
        let mut table = links.lock();
        // The files may have changed since the handshake began.
        if !Arc::ptr_eq(used, &table.identity) {
            let current = Arc::clone(&table.identity);
            current.verify(side, &leaf.node, &chain).map_err(HandshakeError::Certificate)?;
        }
        if side == Side::Incoming {
            let count = table.incoming.entry(leaf.node.clone()).or_default();
            if *count >= limit {
                return Err(HandshakeError::TooManyConnections { node: leaf.node, limit });
            }
            *count += 1;
        }
        let link = Arc::new(LinkState {
            node: leaf.node,
            side,
            chain,
            expires_at_s: leaf.expires_at_s,
            closed: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
        });
        let id = table.next;
        table.next += 1;
        table.open.insert(id, Arc::clone(&link));
        Ok(Link { state: link, id, links: Arc::clone(links) })
    }

    /// Takes another identity into use, and closes the connections that it does not accept.
    pub(super) fn replace(&self, identity: Identity) {
        let identity = Arc::new(identity);
        let open: Vec<Arc<LinkState>> = {
            let mut table = self.lock();
            table.identity = Arc::clone(&identity);
            table.open.values().map(Arc::clone).collect()
        };
        // A node has many connections with one certificate, which is verified once.
        let mut verified: HashMap<(Side, &[CertificateDer<'_>]), bool> = HashMap::new();
        for link in &open {
            let accepted = verified.entry((link.side, &link.chain)).or_insert_with(|| {
                let verdict = identity.verify(link.side, &link.node, &link.chain);
                if let Err(reason) = &verdict {
                    let node = &link.node;
                    warn!(%node, %reason, "connections to a node were closed: its certificate is no longer accepted");
                }
                verdict.is_ok()
            });
            if !*accepted {
                link.close();
            }
        }
    }

    /// Closes connections whose certificate has expired.
    pub(super) fn close_expired(&self, now_s: i64) {
        let table = self.lock();
        let expired = table.open.values().filter(|link| link.expires_at_s < now_s);
        for link in expired.filter(|link| !link.is_closed()) {
            info!(node = %link.node, "a connection to a node was closed: the certificate with which it began has expired");
            link.close();
        }
    }
}

/// A peer whose certificate was verified in a handshake.
pub(super) struct VerifiedPeer {
    pub(super) side: Side,
    pub(super) leaf: Leaf,
    pub(super) chain: Vec<CertificateDer<'static>>,
}
