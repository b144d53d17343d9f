//! The sandbox's end of a connection. It replays the bytes that were read to detect the protocol,
//! and counts the traffic.

use crate::state::sandbox::SandboxEntry;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The sandbox's socket, with byte counters.
#[derive(Debug)]
pub(crate) struct CountedStream {
    stream: TcpStream,
    /// Bytes that were read to detect the protocol, and are replayed.
    head: Vec<u8>,
    replayed_bytes: usize,
    sandbox: Arc<SandboxEntry>,
}

impl CountedStream {
    pub(crate) fn new(stream: TcpStream, head: Vec<u8>, sandbox: Arc<SandboxEntry>) -> Self {
        Self { stream, head, replayed_bytes: 0, sandbox }
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        if this.replayed_bytes < this.head.len() {
            let rest = &this.head[this.replayed_bytes..];
            let length = rest.len().min(into.remaining());
            into.put_slice(&rest[..length]);
            this.replayed_bytes += length;
            if this.replayed_bytes == this.head.len() {
                this.head = Vec::new();
                this.replayed_bytes = 0;
            }
        } else {
            ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
        }
        this.sandbox.sent_bytes.fetch_add((into.filled().len() - before) as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let length = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.sandbox.received_bytes.fetch_add(length as u64, Relaxed);
        Poll::Ready(Ok(length))
    }

    /// When a handshake fails, rustls writes what it has left with one vectored write, and the
    /// alert is its last buffer.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let length = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, buffers))?;
        this.sandbox.received_bytes.fetch_add(length as u64, Relaxed);
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
