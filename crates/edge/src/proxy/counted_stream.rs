//! A sandbox's end of a connection: what was read ahead comes first, and bytes are counted.

use crate::state::sandbox::Link;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The sandbox's end.
#[derive(Debug)]
pub(crate) struct Inside {
    stream: TcpStream,
    head: Vec<u8>,
    taken: usize,
    link: Arc<Link>,
}

impl Inside {
    pub(crate) fn new(stream: TcpStream, head: Vec<u8>, link: Arc<Link>) -> Self {
        Self { stream, head, taken: 0, link }
    }
}

impl AsyncRead for Inside {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        if this.taken < this.head.len() {
            let rest = &this.head[this.taken..];
            let length = rest.len().min(into.remaining());
            into.put_slice(&rest[..length]);
            this.taken += length;
            if this.taken == this.head.len() {
                (this.head, this.taken) = (Vec::new(), 0);
            }
        } else {
            ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
        }
        this.link.out.fetch_add((into.filled().len() - before) as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Inside {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let length = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.link.back.fetch_add(length as u64, Relaxed);
        Poll::Ready(Ok(length))
    }

    /// More than one piece at once: when a handshake fails, TLS writes what it has left once, and
    /// the alert that says why is its last piece.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let length = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, pieces))?;
        this.link.back.fetch_add(length as u64, Relaxed);
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
