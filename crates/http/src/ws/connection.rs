//! One WebSocket, as the conversations need it: written without a queue, watched for life, and ended
//! so that its client reads why.

use crate::{
    auth::cancellation::CancellationReason, connection::smuggling_guard, ws::upgrade::Socket,
};
use futures_util::{Sink, Stream};
use std::{
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::{
    Bytes, Error, Message,
    error::{CapacityError, ProtocolError},
    protocol::{CloseFrame, frame::coding::CloseCode},
};

/// The clock of a socket: every second tick a ping.
const TICK: Duration = Duration::from_secs(7);
/// Ticks without a sign of life until the peer counts as gone: between 21 and 28 seconds.
const SILENT_TICKS: u32 = 3;
/// What stands before an answer's payload, at most.
const FRAME_HEAD_BYTES: usize = 4;
/// How long a goodbye may take.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// The same when the server stops.
const STOP_WAIT: Duration = Duration::from_secs(1);
/// Answers to a client that does not read them (pongs, refusals) until it is not read either.
const UNREAD_REPLIES_BYTES_MAX: usize = 64 * 1024;

/// How a conversation ends.
pub(super) enum CloseReason {
    /// The client said goodbye.
    ClosedByClient,
    /// Said by us, with a code and a word.
    Close(CloseCode, &'static str),
    /// The connection is gone.
    Gone,
}

/// The reason in a close frame (1001) when the sandbox was deleted: the code of the same refusal by
/// HTTP. Nobody is to come back: that would make another sandbox.
const DESTROYED: &str = "sandbox_destroyed";

impl CloseReason {
    /// The sandbox was deleted.
    pub(super) fn destroyed() -> Self {
        Self::Close(CloseCode::Away, DESTROYED)
    }
}

impl From<CancellationReason> for CloseReason {
    fn from(ending: CancellationReason) -> Self {
        match ending {
            CancellationReason::Stopping => Self::Close(CloseCode::Restart, "come back"),
            CancellationReason::Revoked => {
                Self::Close(CloseCode::Policy, "the key no longer opens this server")
            }
            CancellationReason::Expired => Self::Close(CloseCode::Policy, "the link has ended"),
        }
    }
}

/// Goes on, or ends.
pub(super) type Flow<T = ()> = ControlFlow<CloseReason, T>;

/// What the socket brought.
pub(super) enum Event {
    Message(Option<Result<Message, Error>>),
    Flushed(Result<(), Error>),
}

/// A socket, and what is known of its peer.
pub(super) struct WsConnection {
    socket: Socket,
    /// Written into the socket and not flushed.
    unflushed: bool,
    /// Bytes of answers to the client's own frames that are not flushed.
    unread_replies_bytes: usize,
    /// The clock struck while it was so.
    full: bool,
    silent: u32,
    ticks: u32,
}

impl WsConnection {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, unflushed: false, unread_replies_bytes: 0, full: false, silent: 0, ticks: 0 }
    }

    /// Something is written that the connection has not taken yet.
    pub(super) fn has_unflushed(&self) -> bool {
        self.unflushed
    }

    /// Sends what is written, then reads, unless `full` or the client owes us a look at our answers;
    /// both with one borrow, so that neither waits for the other.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, full: bool) -> Poll<Event> {
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.socket).poll_flush(cx)
        {
            return Poll::Ready(Event::Flushed(flushed));
        }
        let read = !full && self.unread_replies_bytes <= UNREAD_REPLIES_BYTES_MAX;
        if read && let Poll::Ready(message) = Pin::new(&mut self.socket).poll_next(cx) {
            return Poll::Ready(Event::Message(message));
        }
        Poll::Pending
    }

    /// The client's message, where the event was one that its conversation must hear.
    pub(super) fn receive(&mut self, event: Event) -> Flow<Option<Message>> {
        let message = match event {
            Event::Flushed(Ok(())) => {
                // Where the connection was full, that it takes something again is a sign of life.
                // Otherwise it is not: a ping fits into the buffer of a cable that was cut.
                if std::mem::take(&mut self.full) {
                    self.silent = 0;
                }
                self.unflushed = false;
                self.unread_replies_bytes = 0;
                return ControlFlow::Continue(None);
            }
            Event::Flushed(Err(_)) | Event::Message(None) => {
                return ControlFlow::Break(CloseReason::Gone);
            }
            Event::Message(Some(Err(error))) => return ControlFlow::Break(close_reason(&error)),
            Event::Message(Some(Ok(message))) => message,
        };
        self.silent = 0;
        match message {
            Message::Close(_) => ControlFlow::Break(CloseReason::ClosedByClient),
            // A ping is answered below us; its answer leaves with the next flush.
            Message::Ping(payload) => {
                self.unflushed = true;
                self.unread_replies_bytes += payload.len() + FRAME_HEAD_BYTES;
                ControlFlow::Continue(None)
            }
            Message::Pong(_) | Message::Frame(_) => ControlFlow::Continue(None),
            message => ControlFlow::Continue(Some(message)),
        }
    }

    /// Writes without asking for room: the caller bounds what it writes before the next flush.
    pub(super) fn write(&mut self, message: Message) -> Flow {
        self.unflushed = true;
        match Pin::new(&mut self.socket).start_send(message) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(CloseReason::Gone),
        }
    }

    /// Writes the answer to a frame of the client's own: one that reads none of them is not read.
    pub(super) fn reply(&mut self, message: Message) -> Flow {
        self.unread_replies_bytes += message.len() + FRAME_HEAD_BYTES;
        self.write(message)
    }

    /// The clock struck. `held`: the client is not read, and its silence is ours.
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

    /// Ends it.
    pub(super) async fn close(mut self, end: CloseReason) {
        let stopping = matches!(end, CloseReason::Close(CloseCode::Restart, _));
        let wait = if stopping { STOP_WAIT } else { CLOSE_WAIT };
        let frame = match end {
            CloseReason::Gone => return,
            CloseReason::ClosedByClient => None,
            CloseReason::Close(code, reason) => Some(CloseFrame { code, reason: reason.into() }),
        };
        let goodbye = async {
            // The answer to the client's own goodbye leaves with the next look for a message.
            if frame.is_some() {
                self.socket.close(frame).await?;
            }
            // Until the client has said goodbye too, so that it reads ours.
            while let Some(message) = futures_util::StreamExt::next(&mut self.socket).await {
                message?;
            }
            Ok::<(), Error>(())
        };
        let _ = timeout(wait, goodbye).await;
        // One that broke the protocol may be speaking still.
        smuggling_guard::close_gracefully(self.socket.get_mut()).await;
    }
}

/// The clock of [`WsConnection::tick`].
pub(super) fn heartbeat() -> Interval {
    let mut clock = interval(TICK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    clock.reset();
    clock
}

/// What is said to a client that broke the protocol.
fn close_reason(error: &Error) -> CloseReason {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. } | CapacityError::TooManyHeaders) => {
            CloseReason::Close(CloseCode::Size, "the message is longer than this address takes")
        }
        Error::Utf8(_) => CloseReason::Close(CloseCode::Invalid, "text frames are UTF-8"),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => CloseReason::Gone,
        Error::Protocol(_) => CloseReason::Close(CloseCode::Protocol, "not a WebSocket frame"),
        _ => CloseReason::Gone,
    }
}
