//! Scans requests before the parser reads them, and closes in a way that lets the client read the
//! last response.

use crate::connection::client_stream::ClientStream;
use crate::connection::head_scanner::HeadScanner;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What the parser reads instead of a refused line. Anywhere in a head, it makes the parser answer
/// 400.
const MALFORMED_LINE: &[u8] = b"\0\r\n\r\n";
/// How long a client may take to receive its last response before the connection is closed.
const LINGER: Duration = Duration::from_millis(500);
/// How many bytes are discarded at once.
const DISCARD_BYTES: usize = 4 * 1024;

/// The connection below hyper.
#[derive(Debug)]
pub(crate) struct SmugglingGuard {
    stream: ClientStream,
    scanner: HeadScanner,
    /// After a refusal: what the parser still has to read before the end.
    injected: Option<&'static [u8]>,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl SmugglingGuard {
    pub(crate) fn new(stream: ClientStream) -> Self {
        Self { stream, scanner: HeadScanner::new(), injected: None, lingering: None }
    }

    /// The bare connection, for when HTTP has ended on it.
    pub(crate) fn into_inner(self) -> ClientStream {
        self.stream
    }
}

fn inject(injected: &mut &'static [u8], buf: &mut ReadBuf<'_>) {
    let (now, later) = injected.split_at(injected.len().min(buf.remaining()));
    buf.put_slice(now);
    *injected = later;
}

impl AsyncRead for SmugglingGuard {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        if let Some(injected) = &mut guard.injected {
            inject(injected, buf);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut guard.stream).poll_read(cx, buf))?;
        if let Err(good) = guard.scanner.scan(&buf.filled()[before..]) {
            buf.set_filled(before + good);
            inject(guard.injected.insert(MALFORMED_LINE), buf);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SmugglingGuard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        if guard.lingering.is_none() {
            ready!(Pin::new(&mut guard.stream).poll_shutdown(cx))?;
            if guard.injected.is_none() && guard.scanner.is_between_requests() {
                return Poll::Ready(Ok(()));
            }
        }
        let lingering = guard.lingering.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if lingering.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        discard_input(&mut guard.stream, cx).map(Ok)
    }
}

/// Discards input until its end. Closing a connection with unread input resets it, and its client
/// may lose the response.
fn discard_input(stream: &mut ClientStream, cx: &mut Context<'_>) -> Poll<()> {
    let mut bytes = [0; DISCARD_BYTES];
    loop {
        let mut buf = ReadBuf::new(&mut bytes);
        if ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf)).is_err()
            || buf.filled().is_empty()
        {
            return Poll::Ready(());
        }
    }
}

/// Closes a connection whose client may still be sending, so that it receives what was written.
pub(crate) async fn close_gracefully(stream: &mut ClientStream) {
    let ended = async {
        if tokio::io::AsyncWriteExt::shutdown(stream).await.is_ok() {
            std::future::poll_fn(|cx| discard_input(stream, cx)).await;
        }
    };
    let _ = tokio::time::timeout(LINGER, ended).await;
}

/// Closes the connection of a request that asked for an upgrade and got an ordinary answer, once
/// the answer is sent. Hyper hands such a connection over instead of closing it.
pub(crate) fn close_after_refused_upgrade(upgrade: OnUpgrade) {
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<SmugglingGuard>>() else { return };
        close_gracefully(&mut parts.io.into_inner().into_inner()).await;
    });
}
