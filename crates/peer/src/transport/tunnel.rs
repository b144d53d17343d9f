//! A connection to a peer after a protocol switch.

use crate::tls::PeerStream;
use bytes::{Buf, Bytes};
use isolet_wire::node::NodeName;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

/// The bytes of both directions after a response with status 101, for example of a WebSocket. It
/// counts among the requests of its node until it is dropped.
#[derive(Debug)]
pub struct PeerTunnel {
    stream: PeerStream,
    /// What was read beyond the head of the response.
    first: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl PeerTunnel {
    pub(super) fn new(stream: PeerStream, first: Bytes, permit: OwnedSemaphorePermit) -> Self {
        Self { stream, first, _permit: permit }
    }

    /// The node at the other end.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        self.stream.node()
    }
}

impl AsyncRead for PeerTunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let count = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PeerTunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
