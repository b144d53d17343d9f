//! One WebSocket: writes without a queue, detects dead peers, and closes so that the client
//! receives the reason.

use crate::auth::cancellation::CancellationReason;
use crate::connection::smuggling_guard;
use crate::ws::upgrade::UpgradedSocket;
use futures_util::{Sink, Stream};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

/// The interval of the heartbeat. Every second one sends a ping.
const TICK: Duration = Duration::from_secs(7);
/// Heartbeats without a sign of life until the peer counts as dead: between 21 and 28 seconds.
const SILENT_TICKS: u32 = 3;
/// The longest header of a frame with a reply.
const FRAME_HEAD_BYTES: usize = 4;
/// How long the closing handshake may take.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// How long the closing handshake may take when the server stops.
const STOP_WAIT: Duration = Duration::from_secs(1);
/// Replies (pongs, errors) that a client has not read before its frames are no longer read.
const UNREAD_REPLIES_BYTES_MAX: usize = 64 * 1024;

/// Why a WebSocket is closed.
pub(super) enum CloseReason {
    /// The client sent a close frame.
    ClosedByClient,
    /// The server sends a close frame with this code and reason.
    Close(CloseCode, &'static str),
    /// The connection broke, so that no close frame can be sent.
    Gone,
}

/// The reason in the close frame (1001) when the sandbox was deleted: the error code of the same
/// refusal over HTTP. The client must not reconnect, which would create another sandbox.
const DESTROYED: &str = "sandbox_destroyed";

/// The reason in the close frame (1001) when the sandbox was put to sleep by force. The client must
/// not reconnect automatically, which would wake the sandbox.
const SLEPT: &str = "sandbox_slept";

impl CloseReason {
    pub(super) fn destroyed() -> Self {
        Self::Close(CloseCode::Away, DESTROYED)
    }

    pub(super) fn slept() -> Self {
        Self::Close(CloseCode::Away, SLEPT)
    }
}

impl From<CancellationReason> for CloseReason {
    fn from(ending: CancellationReason) -> Self {
        match ending {
            CancellationReason::Stopping => Self::Close(CloseCode::Restart, "come back"),
            CancellationReason::Revoked => {
                Self::Close(CloseCode::Policy, "the key was revoked or has expired")
            }
            CancellationReason::Expired => Self::Close(CloseCode::Policy, "the link has expired"),
            CancellationReason::OwnerLost => Self::Close(CloseCode::Restart, "its node has failed"),
        }
    }
}

/// Continue, or close the WebSocket.
pub(super) type Flow<T = ()> = ControlFlow<CloseReason, T>;

/// What polling the socket returned.
pub(super) enum SocketEvent {
    Message(Option<Result<Message, Error>>),
    Flushed(Result<(), Error>),
}

/// A WebSocket and the state of its peer.
pub(super) struct WsConnection {
    socket: UpgradedSocket,
    /// Whether something was written and not flushed.
    unflushed: bool,
    /// Unflushed bytes of replies to the client's own frames.
    unread_replies_bytes: usize,
    /// Whether the last heartbeat found unflushed data.
    full: bool,
    silent: u32,
    ticks: u32,
}

impl WsConnection {
    pub(super) fn new(socket: UpgradedSocket) -> Self {
        Self { socket, unflushed: false, unread_replies_bytes: 0, full: false, silent: 0, ticks: 0 }
    }

    /// Whether something was written that the connection has not accepted yet.
    pub(super) fn has_unflushed(&self) -> bool {
        self.unflushed
    }

    /// Flushes, then reads, unless `full` is set or too many replies are unread. Both share one
    /// borrow, so that neither waits for the other.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, full: bool) -> Poll<SocketEvent> {
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.socket).poll_flush(cx)
        {
            return Poll::Ready(SocketEvent::Flushed(flushed));
        }
        let read = !full && self.unread_replies_bytes <= UNREAD_REPLIES_BYTES_MAX;
        if read && let Poll::Ready(message) = Pin::new(&mut self.socket).poll_next(cx) {
            return Poll::Ready(SocketEvent::Message(message));
        }
        Poll::Pending
    }

    /// Returns the client's message if the event is one for the protocol above.
    pub(super) fn receive(&mut self, event: SocketEvent) -> Flow<Option<Message>> {
        let message = match event {
            SocketEvent::Flushed(Ok(())) => {
                // If the connection was full, accepting data is a sign of life. Otherwise it is
                // not: a ping fits into the buffer of a connection that is cut.
                if std::mem::take(&mut self.full) {
                    self.silent = 0;
                }
                self.unflushed = false;
                self.unread_replies_bytes = 0;
                return ControlFlow::Continue(None);
            }
            SocketEvent::Flushed(Err(_)) | SocketEvent::Message(None) => {
                return ControlFlow::Break(CloseReason::Gone);
            }
            SocketEvent::Message(Some(Err(error))) => {
                return ControlFlow::Break(close_reason(&error));
            }
            SocketEvent::Message(Some(Ok(message))) => message,
        };
        self.silent = 0;
        match message {
            Message::Close(_) => ControlFlow::Break(CloseReason::ClosedByClient),
            // The library answers a ping; the pong leaves with the next flush.
            Message::Ping(payload) => {
                self.unflushed = true;
                self.unread_replies_bytes += payload.len() + FRAME_HEAD_BYTES;
                ControlFlow::Continue(None)
            }
            Message::Pong(_) | Message::Frame(_) => ControlFlow::Continue(None),
            message => ControlFlow::Continue(Some(message)),
        }
    }

    /// Writes without waiting. The caller bounds what it writes before the next flush.
    pub(super) fn write(&mut self, message: Message) -> Flow {
        self.unflushed = true;
        match Pin::new(&mut self.socket).start_send(message) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(CloseReason::Gone),
        }
    }

    /// Replies to a frame of the client. A client that reads no replies is not read either.
    pub(super) fn reply(&mut self, message: Message) -> Flow {
        self.unread_replies_bytes += message.len() + FRAME_HEAD_BYTES;
        self.write(message)
    }

    /// Handles a heartbeat. `held`: the client is not being read, so its silence means nothing.
    pub(super) fn tick(&mut self, held: bool) -> Flow {
        self.ticks = self.ticks.wrapping_add(1);
        self.silent = if held { 0 } else { self.silent + 1 };
        self.full = self.unflushed;
        if self.silent > SILENT_TICKS {
            return ControlFlow::Break(CloseReason::Gone);
        }
        if self.ticks.is_multiple_of(2) && !self.unflushed {
            return self.write(Message::Ping(Bytes::new()));
        }
        ControlFlow::Continue(())
    }

    /// Closes the WebSocket with the closing handshake, and waits for it within limits.
    pub(super) async fn close(mut self, end: CloseReason) {
        let stopping = matches!(end, CloseReason::Close(CloseCode::Restart, _));
        let wait = if stopping { STOP_WAIT } else { CLOSE_WAIT };
        let frame = match end {
            CloseReason::Gone => return,
            CloseReason::ClosedByClient => None,
            CloseReason::Close(code, reason) => Some(CloseFrame { code, reason: reason.into() }),
        };
        let goodbye = async {
            // The reply to the client's own close frame leaves with the next read.
            if frame.is_some() {
                self.socket.close(frame).await?;
            }
            // Waits for the client's close frame, so that the client has read ours.
            while let Some(message) = futures_util::StreamExt::next(&mut self.socket).await {
                message?;
            }
            Ok::<(), Error>(())
        };
        let _ = timeout(wait, goodbye).await;
        // A client that violated the protocol may still be sending.
        smuggling_guard::close_gracefully(self.socket.get_mut()).await;
    }
}

/// The interval for [`WsConnection::tick`].
pub(super) fn heartbeat() -> Interval {
    let mut clock = interval(TICK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    clock.reset();
    clock
}

/// The close reason for a protocol error.
fn close_reason(error: &Error) -> CloseReason {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. } | CapacityError::TooManyHeaders) => {
            CloseReason::Close(CloseCode::Size, "the message is longer than this route accepts")
        }
        Error::Utf8(_) => CloseReason::Close(CloseCode::Invalid, "text frames must be UTF-8"),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => CloseReason::Gone,
        Error::Protocol(_) => CloseReason::Close(CloseCode::Protocol, "not a WebSocket frame"),
        _ => CloseReason::Gone,
    }
}
