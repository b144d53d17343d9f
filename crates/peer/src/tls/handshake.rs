//! The TLS handshake with a peer.

use crate::parsed::{BadCertificate, Leaf};
use crate::tls::PeerTls;
use crate::tls::error::HandshakeError;
use crate::tls::identity::{Side, server_name};
use crate::tls::links::{LinkState, Links, VerifiedPeer};
use crate::tls::stream::PeerStream;
use isolet_wire::node::NodeName;
use rustls::CommonState;
use std::sync::Arc;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// How much is read from a connection at once, in bytes. TLS alone would ask the kernel for 4 KiB each
/// time, which makes large transfers slow.
const READ_BYTES: usize = 64 * 1024;

impl PeerTls {
    /// Makes the handshake of an incoming connection. `limit` is the maximum number of incoming
    /// connections of one node.
    pub(crate) async fn accept(
        &self,
        tcp: TcpStream,
        limit: usize,
    ) -> Result<PeerStream, HandshakeError> {
        let used = self.identity();
        let address = tcp.peer_addr()?;
        let tls = TlsAcceptor::from(Arc::clone(&used.server)).accept(buffered(tcp)).await?;
        let peer = verified(Side::Incoming, tls.get_ref().1)?;
        let link = Links::register(self.links(), &used, peer, limit)?;
        Ok(PeerStream::new(TlsStream::from(tls), link, address))
    }

    /// Makes the handshake of an outgoing connection to a node.
    pub(crate) async fn connect(
        &self,
        tcp: TcpStream,
        node: &NodeName,
    ) -> Result<OpenConnection, HandshakeError> {
        let used = self.identity();
        let address = tcp.peer_addr()?;
        let name = server_name(node).map_err(HandshakeError::Certificate)?;
        let tls = TlsConnector::from(Arc::clone(&used.client)).connect(name, buffered(tcp)).await?;
        let peer = verified(Side::Outgoing, tls.get_ref().1)?;
        if peer.leaf.node != *node {
            return Err(HandshakeError::OtherNode { dialled: node.clone(), found: peer.leaf.node });
        }
        let link = Links::register(self.links(), &used, peer, usize::MAX)?;
        let state = Arc::clone(&link.state);
        let stream = PeerStream::new(TlsStream::from(tls), link, address);
        Ok(OpenConnection { stream, state, own_serial: used.own.serial.clone() })
    }
}

/// An outgoing connection.
pub(crate) struct OpenConnection {
    pub(crate) stream: PeerStream,
    /// Whether it is still accepted.
    pub(crate) state: Arc<LinkState>,
    /// The serial number of this node's certificate with which it began.
    pub(crate) own_serial: String,
}

fn buffered(tcp: TcpStream) -> BufReader<TcpStream> {
    BufReader::with_capacity(READ_BYTES, tcp)
}

/// The peer of a finished handshake.
fn verified(side: Side, tls: &CommonState) -> Result<VerifiedPeer, HandshakeError> {
    let chain = tls.peer_certificates().unwrap_or_default();
    let leaf = chain.first().ok_or(BadCertificate::Empty("CERTIFICATE"))?;
    let leaf = Leaf::parse(leaf)?;
    let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
    Ok(VerifiedPeer { side, leaf, chain })
}
