//! One HTTP/1.1 connection to a peer.
//!
//! The task that waits for a response drives the connection; there is no other task, which would
//! cost two wake-ups for each request. A request that is dropped therefore closes its connection,
//! and the peer notices. Nothing drives an idle connection, so it is polled once before it is used
//! again.

use crate::tls::{LinkState, OpenConnection, PeerStream};
use crate::transport::{HEAD_BYTES_MAX, HEADERS_MAX};
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use isolet_wire::node::NodeName;
use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The size of the read buffer, which bounds the memory for a response whose client does not read.
const READ_BYTES_MAX: usize = 256 * 1024;

/// A body that can be sent to a peer.
pub trait RequestBody:
    Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + 'static
{
}

impl<B> RequestBody for B
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
}

/// A connection to a peer.
pub(super) struct PeerConnection<B: RequestBody> {
    sender: SendRequest<B>,
    http: HttpState<B>,
    link: Arc<LinkState>,
    /// The address that was dialled.
    pub(super) address: SocketAddr,
    /// The serial number of this node's certificate with which it began.
    own_serial: String,
    began: Instant,
    /// Whether it has carried a request.
    reused: bool,
}

enum HttpState<B: RequestBody> {
    Live(Connection<TokioIo<PeerStream>, B>),
    /// HTTP has ended on the connection by a protocol switch or a clean close.
    Over(Connection<TokioIo<PeerStream>, B>),
    Gone,
}

/// A request got no response.
pub(super) struct Unanswered<B> {
    pub(super) error: hyper::Error,
    /// The request, when nothing of it was sent.
    pub(super) unsent: Option<Request<B>>,
    pub(super) reused: bool,
}

impl<B: RequestBody> PeerConnection<B> {
    pub(super) async fn open(
        connection: OpenConnection,
        address: SocketAddr,
    ) -> Result<Self, hyper::Error> {
        let OpenConnection { stream, state, own_serial } = connection;
        let (sender, http) = http1::Builder::new()
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(READ_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let http = HttpState::Live(http);
        Ok(Self {
            sender,
            http,
            link: state,
            address,
            own_serial,
            began: Instant::now(),
            reused: false,
        })
    }

    /// Sends a request and returns the head of the response. After that, the reader of the body
    /// drives the connection.
    pub(super) async fn send(
        mut self,
        request: Request<B>,
    ) -> Result<(Response<Incoming>, Self), Unanswered<B>> {
        let answer = {
            let mut asked = pin!(self.sender.try_send_request(request));
            let http = &mut self.http;
            poll_fn(|cx| {
                http.drive(cx);
                let answer = asked.as_mut().poll(cx);
                if answer.is_ready() || matches!(http, HttpState::Live(_)) {
                    return answer;
                }
                // Closed before it accepted the request: dropping the connection wakes the waiting
                // request.
                *http = HttpState::Gone;
                asked.as_mut().poll(cx)
            })
            .await
        };
        let reused = std::mem::replace(&mut self.reused, true);
        match answer {
            Ok(answer) => Ok((answer, self)),
            Err(mut lost) => {
                let unsent = lost.take_message();
                Err(Unanswered { unsent, error: lost.into_error(), reused })
            }
        }
    }

    /// The node at the other end.
    pub(super) fn node(&self) -> &NodeName {
        &self.link.node
    }

    /// Makes progress on the connection.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        self.http.drive(cx);
    }

    /// The bare connection after a protocol switch, and the bytes that were read beyond the head.
    pub(super) async fn into_switched(mut self) -> Option<(PeerStream, Bytes)> {
        poll_fn(|cx| {
            self.http.drive(cx);
            if matches!(self.http, HttpState::Live(_)) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let HttpState::Over(http) = self.http else { return None };
        let parts = http.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }

    /// Whether it can take the next request. Does not wait.
    pub(super) fn is_idle(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.drive(&mut cx);
        let live = matches!(self.http, HttpState::Live(_));
        live && matches!(self.sender.poll_ready(&mut cx), Poll::Ready(Ok(())))
    }

    /// Whether it may carry further requests: it began with the current certificate of this node,
    /// is not too old, and the certificate of the peer is still accepted.
    pub(super) fn is_current(&self, own_serial: &str, age: Duration) -> bool {
        self.own_serial == own_serial && self.began.elapsed() < age && !self.link.is_closed()
    }
}

impl<B: RequestBody> HttpState<B> {
    fn drive(&mut self, cx: &mut Context<'_>) {
        let Self::Live(http) = self else { return };
        let Poll::Ready(ended) = http.poll_without_shutdown(cx) else { return };
        if let Self::Live(http) = std::mem::replace(self, Self::Gone)
            && ended.is_ok()
        {
            *self = Self::Over(http);
        }
    }
}
