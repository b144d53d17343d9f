//! Bytes of a TCP connection to a port, as binary frames both ways.
//!
//! What one side does not take is not read from the other. Either side's end is a text frame
//! `{"type":"eof"}`: the client's always, the program's where the client asked for it; otherwise the
//! program's end closes the socket.

use crate::{
    auth::cancellation::Until,
    ws::{
        connection::{End, Go, Line, clock},
        upgrade::Socket,
    },
};
use bytes::BytesMut;
use isolet_sandbox::{PortLink, Sandbox};
use std::{future::poll_fn, ops::ControlFlow};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio_tungstenite::tungstenite::{Bytes, Message, protocol::frame::coding::CloseCode};

/// The longest message of a client.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Read of the program at once: one frame.
const READ_BYTES: usize = 64 * 1024;
const EOF: &str = r#"{"type":"eof"}"#;

/// Both sides, and what was agreed.
pub(crate) struct Client {
    /// Where the port is; held, so that it stays awake.
    pub(crate) sandbox: Sandbox,
    /// The connection to it.
    pub(crate) link: PortLink,
    /// The client wants to hear of the program's end and speak on.
    pub(crate) half: bool,
}

/// Carries bytes until both sides have ended, or one has gone.
pub(crate) async fn run(socket: Socket, client: Client, until: Until) {
    let Client { sandbox, link, half } = client;
    let (read, write) = tokio::io::split(link);
    let mut talk =
        Talk { line: Line::new(socket), sandbox, half, waiting: Bytes::new(), open: (true, true) };
    let end = talk.carry(read, write, until).await;
    // The program's end is the sandbox's own: it was deleted.
    let end = match end {
        End::Close(..) if talk.sandbox.destroyed().is_some() => End::destroyed(),
        end => end,
    };
    talk.line.leave(end).await;
}

struct Talk {
    line: Line,
    /// Held, so that it stays awake.
    sandbox: Sandbox,
    half: bool,
    /// From the client, and not taken by the program yet.
    waiting: Bytes,
    /// Whether the program and the client may still speak.
    open: (bool, bool),
}

impl Talk {
    async fn carry(
        &mut self,
        mut guest: ReadHalf<PortLink>,
        mut to: WriteHalf<PortLink>,
        mut until: Until,
    ) -> End {
        let (mut clock, mut buffer) = (clock(), BytesMut::new());
        loop {
            let (full, dirty) = (!self.waiting.is_empty(), self.line.dirty());
            buffer.reserve(READ_BYTES);
            let go = tokio::select! {
                event = poll_fn(|cx| self.line.poll(cx, full)) => match self.line.hear(event) {
                    ControlFlow::Continue(Some(message)) => self.said(message, &mut to).await,
                    ControlFlow::Continue(None) => Go::Continue(()),
                    ControlFlow::Break(end) => ControlFlow::Break(end),
                },
                sent = to.write(&self.waiting), if full => self.sent(sent),
                read = guest.read_buf(&mut buffer), if self.open.0 && !dirty => match read {
                    Ok(1..) => self.line.write(Message::Binary(buffer.split().freeze())),
                    Ok(_) => self.ended(),
                    Err(_) => Go::Break(End::Close(CloseCode::Error, "the program has reset it")),
                },
                _ = clock.tick() => self.line.tick(full),
                ending = until.ended() => Go::Break(ending.into()),
            };
            if let ControlFlow::Break(end) = go {
                return end;
            }
        }
    }

    /// The client's words.
    async fn said(&mut self, message: Message, to: &mut WriteHalf<PortLink>) -> Go {
        match message {
            Message::Binary(bytes) if self.open.1 => self.waiting = bytes,
            Message::Text(text) if text.as_str() == EOF && self.open.1 => {
                self.open.1 = false;
                // What was said before is sent: nothing is read while anything waits.
                let _ = to.shutdown().await;
                return self.both();
            }
            _ => {
                let reason = "binary frames, and one text frame {\"type\":\"eof\"} at the end";
                return Go::Break(End::Close(CloseCode::Unsupported, reason));
            }
        }
        Go::Continue(())
    }

    fn sent(&mut self, sent: std::io::Result<usize>) -> Go {
        match sent {
            Ok(count @ 1..) => {
                let _ = self.waiting.split_to(count);
                Go::Continue(())
            }
            _ => Go::Break(End::Close(CloseCode::Error, "the program has closed it")),
        }
    }

    /// The program speaks no more.
    fn ended(&mut self) -> Go {
        self.open.0 = false;
        if self.sandbox.destroyed().is_some() {
            return Go::Break(End::destroyed());
        }
        if self.half && self.open.1 {
            return self.line.write(Message::text(EOF));
        }
        self.both()
    }

    fn both(&self) -> Go {
        match self.open {
            (false, _) => Go::Break(End::Close(CloseCode::Normal, "the connection has ended")),
            _ => Go::Continue(()),
        }
    }
}
