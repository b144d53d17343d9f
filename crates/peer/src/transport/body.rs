//! The body of a response of a peer.

use crate::transport::connection::{PeerConnection, RequestBody};
use crate::transport::error::PeerError;
use crate::transport::pool::PoolState;
use crate::transport::tunnel::PeerTunnel;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::http::response::Parts;
use isolet_wire::node::NodeName;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;

/// The body of a response of a peer. It reads from the connection only when it is polled. Dropped
/// before its end, it closes the connection.
pub struct PeerBody<B: RequestBody> {
    incoming: Incoming,
    node: NodeName,
    switched: bool,
    /// `None` after the connection was given back or became a tunnel.
    held: Option<Held<B>>,
}

/// What a request that is under way holds.
struct Held<B: RequestBody> {
    connection: PeerConnection<B>,
    pool: Arc<PoolState<B>>,
    permit: OwnedSemaphorePermit,
}

impl<B: RequestBody> fmt::Debug for PeerBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerBody").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<B: RequestBody> PeerBody<B> {
    pub(super) fn new(
        head: &Parts,
        incoming: Incoming,
        connection: PeerConnection<B>,
        pool: Arc<PoolState<B>>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
        let node = connection.node().clone();
        Self { incoming, node, switched, held: Some(Held { connection, pool, permit }) }
    }

    /// The node that responded.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The connection itself after a response with status 101.
    ///
    /// # Errors
    /// The response has another status, or the connection has ended.
    pub async fn into_tunnel(mut self) -> Result<PeerTunnel, PeerError> {
        let held = self.held.take().filter(|_| self.switched);
        let not_switched = || PeerError::NotSwitched(self.node.clone());
        let Held { connection, permit, .. } = held.ok_or_else(not_switched)?;
        let (stream, first) = connection.into_switched().await.ok_or_else(not_switched)?;
        Ok(PeerTunnel::new(stream, first, permit))
    }

    /// Gives the connection back to the pool after the end of the response.
    fn give_back(&mut self) {
        if self.switched {
            return;
        }
        if let Some(Held { connection, pool, permit }) = self.held.take() {
            pool.put(&self.node, connection);
            drop(permit);
        }
    }
}

impl<B: RequestBody> Body for PeerBody<B> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut frame = Pin::new(&mut self.incoming).poll_frame(cx);
        if frame.is_pending()
            && let Some(held) = &mut self.held
        {
            held.connection.drive(cx);
            frame = Pin::new(&mut self.incoming).poll_frame(cx);
        }
        // The only sign of the end of a body in chunks.
        if let Poll::Ready(None) = &frame {
            self.give_back();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl<B: RequestBody> Drop for PeerBody<B> {
    /// The reader of an empty body, or of one with a known length, need not poll its end.
    fn drop(&mut self) {
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }
}
