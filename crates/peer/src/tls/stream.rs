//! A connection to a verified node.

use crate::tls::links::Link;
use isolet_wire::node::NodeName;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A connection to a node whose certificate was verified. When the certificate is revoked or
/// expires, every operation fails with [`ErrorKind::ConnectionAborted`], also those that wait.
pub struct PeerStream {
    tls: TlsStream<BufReader<TcpStream>>,
    link: Link,
    address: SocketAddr,
}

impl fmt::Debug for PeerStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerStream")
            .field("node", &self.link.state.node)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl PeerStream {
    pub(super) fn new(
        tls: TlsStream<BufReader<TcpStream>>,
        link: Link,
        address: SocketAddr,
    ) -> Self {
        Self { tls, link, address }
    }

    /// The node, as its certificate names it.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.link.state.node
    }

    /// The address of the peer.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn check(&self) -> io::Result<()> {
        if self.link.state.is_closed() {
            let reason = "the certificate of the peer is no longer accepted";
            return Err(io::Error::new(ErrorKind::ConnectionAborted, reason));
        }
        Ok(())
    }

    /// Performs one operation of the writing side.
    fn write_side<T>(
        &mut self,
        cx: &mut Context<'_>,
        operation: impl FnOnce(
            Pin<&mut TlsStream<BufReader<TcpStream>>>,
            &mut Context<'_>,
        ) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.check()?;
        let done = operation(Pin::new(&mut self.tls), cx);
        if done.is_pending() {
            self.link.state.writer.register(cx.waker());
            // It may have been closed before the waker was registered.
            self.check()?;
        }
        done
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let done = Pin::new(&mut self.tls).poll_read(cx, buffer);
        if done.is_pending() {
            self.link.state.reader.register(cx.waker());
            // It may have been closed before the waker was registered.
            self.check()?;
        }
        done
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write_side(cx, |tls, cx| tls.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_side(cx, |tls, cx| tls.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_side(cx, |tls, cx| tls.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_side(cx, |tls, cx| tls.poll_shutdown(cx))
    }
}
