//! Why a request to a peer got no response.

use crate::tls::HandshakeError;
use hyper::Request;
use isolet_wire::node::NodeName;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a request to a peer got no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// No TCP connection.
    #[error("the node {node} cannot be reached at {address}: {source}")]
    Connect {
        /// The node.
        node: NodeName,
        /// Its address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No connection within the time limit.
    #[error("the node {node} did not accept a connection at {address} within {} ms", after.as_millis())]
    Timeout {
        /// The node.
        node: NodeName,
        /// Its address.
        address: SocketAddr,
        /// The time limit.
        after: Duration,
    },
    /// The TLS handshake failed.
    #[error("no TLS connection with the node {node} at {address}: {source}")]
    Handshake {
        /// The node.
        node: NodeName,
        /// Its address.
        address: SocketAddr,
        /// What failed.
        source: HandshakeError,
    },
    /// The maximum number of requests to a node are under way.
    #[error("{limit} requests to the node {node} are under way, the maximum; retry later")]
    Busy {
        /// The node.
        node: NodeName,
        /// The maximum.
        limit: usize,
    },
    /// The connection ended before a response. The node may have processed the request.
    #[error("the node {node} closed the connection without a response: {}", causes(source))]
    Lost {
        /// The node.
        node: NodeName,
        /// Whether the connection had carried earlier requests, so that its idle time may have
        /// ended when the request was sent.
        reused: bool,
        /// What happened to the connection.
        source: hyper::Error,
    },
    /// The body of a response that is no protocol switch.
    #[error("the node {0} did not switch protocols")]
    NotSwitched(NodeName),
}

/// A request that got no response.
pub struct SendError<B> {
    /// Why.
    pub error: PeerError,
    /// The request, if no part of it was sent: it can be sent to another node.
    pub unsent: Option<Box<Request<B>>>,
}

impl<B> fmt::Debug for SendError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unsent = self.unsent.is_some();
        f.debug_struct("SendError").field("error", &self.error).field("unsent", &unsent).finish()
    }
}

impl<B> fmt::Display for SendError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> StdError for SendError<B> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// An error with its sources: hyper hides in them that the peer refused a certificate.
fn causes(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
