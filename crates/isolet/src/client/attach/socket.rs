//! The client side of the terminal's WebSocket.

use crate::client::ApiClient;
use crate::client::server_error::ServerError;
use crate::client::stream::ServerStream;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::{Sink, Stream};
use serde_json::Value;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// How long the server may take to answer an attach. It may have to create the sandbox first.
const ATTACH: Duration = Duration::from_secs(30);

/// A message of the server.
pub(super) enum TerminalFrame {
    /// A text frame, parsed as JSON.
    Json(Value),
    /// Output of the terminal.
    Bytes(Bytes),
    /// Another frame, which shows that the server is alive.
    Other,
    /// The socket is closed, with the reason of the server.
    Closed(Option<String>),
}

/// An open socket. Sending does not wait: a message was sent once [`TerminalSocket::is_idle`].
pub(super) struct TerminalSocket {
    inner: WebSocketStream<ServerStream>,
    unsent: bool,
}

impl TerminalSocket {
    /// Attaches by its query.
    ///
    /// # Errors
    /// [`ServerError`] if the server refused. Any other error may be retried.
    pub(super) async fn open(server: &ApiClient, id: &str, query: &str) -> Result<Self> {
        let path = format!("/v1/sandboxes/{id}/terminal?events=1{query}");
        let request = server.socket_request(&path)?;
        let stream = server.connect().await?;
        let opened = timeout(ATTACH, client_async(request, stream)).await;
        let opened = opened.context("the server does not answer")?;
        let (inner, _) = opened.map_err(|error| match error {
            Error::Http(answer) => anyhow::Error::new({
                let body = answer.body().as_deref().unwrap_or_default();
                ServerError::from_response(answer.status().as_u16(), body, id)
            }),
            other => other.into(),
        })?;
        Ok(Self { inner, unsent: false })
    }

    /// Whether all messages were sent.
    pub(super) fn is_idle(&self) -> bool {
        !self.unsent
    }

    /// Sends one message; call it only while the socket is idle. `next` reports whether sending failed.
    pub(super) fn start_send(&mut self, message: Message) {
        let _ = Pin::new(&mut self.inner).start_send(message);
        self.unsent = true;
    }

    /// The next frame if `read` is set; `None` when the pending message was sent. Cancel
    /// safe.
    pub(super) async fn next(&mut self, read: bool) -> Option<TerminalFrame> {
        poll_fn(|context| self.poll(context, read)).await
    }

    fn poll(&mut self, context: &mut Context<'_>, read: bool) -> Poll<Option<TerminalFrame>> {
        if self.unsent {
            match Pin::new(&mut self.inner).poll_flush(context) {
                Poll::Ready(Ok(())) => {
                    self.unsent = false;
                    return Poll::Ready(None);
                }
                // Frames that the server sent before it closed must still be read.
                Poll::Ready(Err(_)) => self.unsent = false,
                Poll::Pending => {}
            }
        }
        if !read {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_next(context).map(|frame| {
            Some(match frame {
                Some(Ok(Message::Text(text))) => {
                    TerminalFrame::Json(serde_json::from_str(&text).unwrap_or_default())
                }
                Some(Ok(Message::Binary(bytes))) => TerminalFrame::Bytes(bytes),
                Some(Ok(Message::Close(close))) => {
                    TerminalFrame::Closed(close.map(|close| close.reason.to_string()))
                }
                Some(Ok(_)) => TerminalFrame::Other,
                Some(Err(_)) | None => TerminalFrame::Closed(None),
            })
        })
    }

    /// The first text frame, which describes the terminal that this client is attached to.
    pub(super) async fn attached(&mut self) -> Result<Value> {
        let first = async {
            loop {
                match self.next(true).await {
                    Some(TerminalFrame::Json(said)) if said["type"] == "attached" => {
                        return Ok(said);
                    }
                    Some(TerminalFrame::Closed(Some(reason))) if !reason.is_empty() => {
                        anyhow::bail!("{reason}")
                    }
                    Some(TerminalFrame::Closed(_)) => anyhow::bail!("connection lost"),
                    _ => {}
                }
            }
        };
        timeout(ATTACH, first).await.context("the server does not answer")?
    }

    /// Closes the socket. The terminal keeps running.
    pub(super) async fn close(mut self) {
        let _ = timeout(Duration::from_millis(500), self.inner.close(None)).await;
    }
}
