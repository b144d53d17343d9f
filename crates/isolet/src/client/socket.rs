//! The client side of the shell WebSocket.

use super::ApiClient;
use super::server_error::ServerError;
use super::stream::ServerStream;
use anyhow::{Context, Result};
use futures_util::future::ready;
use futures_util::stream::{SplitSink, Stream};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// A frame of the server.
pub(crate) enum ShellFrame {
    /// A text frame, parsed as JSON.
    Json(Value),
    /// A binary frame with output.
    Data {
        /// 1 for standard output, 2 for standard error.
        stream: u8,
        /// The offset of the first byte in the stream.
        offset: u64,
        /// The bytes as the program wrote them.
        bytes: bytes::Bytes,
    },
    /// The socket was closed, with the reason if there was one.
    Closed(String),
}

/// The connection.
type WebSocket = WebSocketStream<ServerStream>;

/// A socket that is attached to a shell.
pub(crate) struct ShellSocket {
    inner: WebSocket,
    /// The id for `?resume=`.
    pub(crate) shell: String,
    /// The offset of each stream at the time of the attach.
    pub(crate) at: (u64, u64),
}

impl ShellSocket {
    /// Opens the socket with this query, which requests binary frames.
    pub(crate) async fn open(server: &ApiClient, id: &str, query: &str) -> Result<Self> {
        let path = format!("/v1/sandboxes/{id}/shell?frames=binary{query}");
        let request = server.socket_request(&path)?;
        let stream = server.connect().await?;
        let (inner, answer) = client_async(request, stream).await.map_err(|error| match error {
            Error::Http(answer) => anyhow::Error::new({
                let body = answer.body().as_deref().unwrap_or_default();
                ServerError::from_response(answer.status().as_u16(), body, id)
            }),
            other => other.into(),
        })?;
        let header = |name| {
            answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        let shell = header("isolet-shell").to_owned();
        let mut at = header("isolet-at").split(',').map(|n| n.parse().unwrap_or(0));
        let at = (at.next().unwrap_or(0), at.next().unwrap_or(0));
        Ok(Self { inner, shell, at })
    }

    /// Sends a frame as JSON text.
    pub(crate) async fn send(&mut self, frame: &Value) -> Result<()> {
        self.inner.send(Message::text(frame.to_string())).await.context("connection lost")
    }

    /// The next frame. Waits until one arrives or the socket closes.
    pub(crate) async fn next(&mut self) -> ShellFrame {
        loop {
            if let Some(frame) = frame(self.inner.next().await) {
                return frame;
            }
        }
    }

    /// Separates sending from receiving, so that one does not wait for the other.
    pub(crate) fn split(
        self,
    ) -> (SplitSink<WebSocket, Message>, impl Stream<Item = ShellFrame> + Unpin) {
        let (sink, stream) = self.inner.split();
        let frames = stream.filter_map(|message| ready(frame(Some(message))));
        (sink, frames)
    }

    /// Closes the socket. A private shell ends then.
    pub(crate) async fn close(mut self) {
        if self.inner.close(None).await.is_ok() {
            while let Some(Ok(_)) = self.inner.next().await {}
        }
    }
}

/// The frame of a message, if it is one. `None` stands for the end of the connection.
fn frame(message: Option<Result<Message, Error>>) -> Option<ShellFrame> {
    match message {
        Some(Ok(Message::Text(text))) => {
            Some(ShellFrame::Json(serde_json::from_str(&text).unwrap_or_default()))
        }
        Some(Ok(Message::Binary(body))) => data(body),
        Some(Ok(Message::Close(close))) => Some(ShellFrame::Closed(
            close.map(|close| close.reason.to_string()).unwrap_or_default(),
        )),
        Some(Ok(_)) => None,
        Some(Err(_)) | None => Some(ShellFrame::Closed("connection lost".to_owned())),
    }
}

/// Parses a binary frame: `u8 stream, u64 offset, u16 id length, id, bytes`.
fn data(mut body: bytes::Bytes) -> Option<ShellFrame> {
    use bytes::Buf;
    if body.len() < 11 {
        return None;
    }
    let stream = body.get_u8();
    let offset = body.get_u64();
    let id = usize::from(body.get_u16());
    (body.len() >= id).then(|| {
        body.advance(id);
        ShellFrame::Data { stream, offset, bytes: body }
    })
}
