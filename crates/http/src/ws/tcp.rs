//! Carries a TCP connection to a port over a WebSocket, as binary frames both ways.
//!
//! What one side does not accept is not read from the other. The end of either side is a text frame
//! `{"type":"eof"}`: the client always sends it, the server only when the client asked for
//! half-close; otherwise the end of the program closes the socket.

use crate::auth::cancellation::Cancellation;
use crate::foundation::json_text;
use crate::ws::connection::{CloseReason, Flow, WsConnection, heartbeat};
use crate::ws::upgrade::UpgradedSocket;
use bytes::BytesMut;
use isolet_sandbox::{PortConnection, Sandbox};
use serde::{Deserialize, Serialize};
use std::future::poll_fn;
use std::ops::ControlFlow;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use utoipa::ToSchema;

/// The longest message of a client.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// The read buffer: one frame.
const READ_BYTES: usize = 64 * 1024;
/// The longest text frame of a client, in bytes.
const TEXT_BYTES_MAX: usize = 64;

/// A text frame, in both directions. Binary frames are the data of the connection.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum TcpFrame {
    /// The sender sends no more data.
    Eof {},
}

impl TcpFrame {
    fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        serde_json::from_str(text).ok()
    }
}

/// A client and its connection to the port.
pub(crate) struct TcpClient {
    /// Keeps the sandbox awake.
    pub(crate) sandbox: Sandbox,
    /// The connection to the port.
    pub(crate) link: PortConnection,
    /// Whether the client may go on sending after the program has ended its side.
    pub(crate) half_close: bool,
}

/// Copies bytes until both sides have ended or one has disconnected.
pub(crate) async fn run(socket: UpgradedSocket, client: TcpClient, cancellation: Cancellation) {
    let TcpClient { sandbox, link, half_close } = client;
    let (read, write) = tokio::io::split(link);
    let mut conversation = TcpSocket {
        connection: WsConnection::new(socket),
        sandbox,
        half_close,
        unwritten: Bytes::new(),
        open: (true, true),
    };
    let end = conversation.copy_both_ways(read, write, cancellation).await;
    // The program's connection ended because the sandbox was deleted.
    let end = match end {
        CloseReason::Close(..) if conversation.sandbox.destroyed().is_some() => {
            CloseReason::destroyed()
        }
        end => end,
    };
    conversation.connection.close(end).await;
}

struct TcpSocket {
    connection: WsConnection,
    /// Keeps the sandbox awake.
    sandbox: Sandbox,
    half_close: bool,
    /// Data from the client that the program has not accepted yet.
    unwritten: Bytes,
    /// Whether the program and the client may still send.
    open: (bool, bool),
}

impl TcpSocket {
    async fn copy_both_ways(
        &mut self,
        mut guest: ReadHalf<PortConnection>,
        mut to: WriteHalf<PortConnection>,
        mut cancellation: Cancellation,
    ) -> CloseReason {
        let mut clock = heartbeat();
        let mut buffer = BytesMut::new();
        loop {
            let full = !self.unwritten.is_empty();
            let unflushed = self.connection.has_unflushed();
            buffer.reserve(READ_BYTES);
            let flow = tokio::select! {
                event = poll_fn(|cx| self.connection.poll(cx, full)) => match self.connection.receive(event) {
                    ControlFlow::Continue(Some(message)) => self.handle_message(message, &mut to).await,
                    ControlFlow::Continue(None) => Flow::Continue(()),
                    ControlFlow::Break(end) => ControlFlow::Break(end),
                },
                sent = to.write(&self.unwritten), if full => self.sent(sent),
                read = guest.read_buf(&mut buffer), if self.open.0 && !unflushed => match read {
                    Ok(1..) => self.connection.write(Message::Binary(buffer.split().freeze())),
                    Ok(_) => self.ended(),
                    Err(_) => Flow::Break(CloseReason::Close(CloseCode::Error, "the program reset the connection")),
                },
                _ = clock.tick() => self.connection.tick(full),
                reason = cancellation.cancelled() => Flow::Break(reason.into()),
            };
            if let ControlFlow::Break(end) = flow {
                return end;
            }
        }
    }

    /// Handles a message of the client.
    async fn handle_message(
        &mut self,
        message: Message,
        to: &mut WriteHalf<PortConnection>,
    ) -> Flow {
        match message {
            Message::Binary(bytes) if self.open.1 => self.unwritten = bytes,
            Message::Text(text) if self.open.1 && TcpFrame::parse(&text).is_some() => {
                self.open.1 = false;
                // Earlier data was already written: nothing is read while data waits.
                let _ = to.shutdown().await;
                return self.close_when_both_ended();
            }
            _ => {
                let reason = "binary frames, and one text frame {\"type\":\"eof\"} at the end";
                return Flow::Break(CloseReason::Close(CloseCode::Unsupported, reason));
            }
        }
        Flow::Continue(())
    }

    fn sent(&mut self, sent: std::io::Result<usize>) -> Flow {
        match sent {
            Ok(count @ 1..) => {
                let _ = self.unwritten.split_to(count);
                Flow::Continue(())
            }
            _ => Flow::Break(CloseReason::Close(
                CloseCode::Error,
                "the program closed the connection",
            )),
        }
    }

    /// The program has ended its side.
    fn ended(&mut self) -> Flow {
        self.open.0 = false;
        if self.sandbox.destroyed().is_some() {
            return Flow::Break(CloseReason::destroyed());
        }
        if self.half_close && self.open.1 {
            let eof = json_text::to_string(&TcpFrame::Eof {}, TEXT_BYTES_MAX);
            return self.connection.write(Message::text(eof));
        }
        self.close_when_both_ended()
    }

    fn close_when_both_ended(&self) -> Flow {
        match self.open {
            (false, _) => {
                Flow::Break(CloseReason::Close(CloseCode::Normal, "the connection has ended"))
            }
            _ => Flow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eof_is_the_only_text_frame() {
        assert_eq!(json_text::to_string(&TcpFrame::Eof {}, 0), r#"{"type":"eof"}"#);
        assert!(TcpFrame::parse(r#"{"type":"eof"}"#).is_some());
        let long = format!("{}{}", r#"{"type":"eof"}"#, " ".repeat(100));
        for bad in ["", "eof", "{}", r#"{"type":"end"}"#, r#"{"type":"eof","a":1}"#, &long] {
            assert!(TcpFrame::parse(bad).is_none(), "{bad}");
        }
    }
}
