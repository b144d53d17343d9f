//! The client side of the terminal's WebSocket.

use crate::client::{Server, server_error::ServerError};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::{Sink, Stream};
use serde_json::Value;
use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest},
};

/// How long a server may take to answer an attach: it may have to make the sandbox.
const ATTACH: Duration = Duration::from_secs(30);

/// What the server sent.
pub(super) enum TerminalFrame {
    /// A text frame.
    Json(Value),
    /// What the terminal shows.
    Bytes(Bytes),
    /// Another frame, which shows that the server is alive.
    Other,
    /// The socket is closed, with the reason of the server.
    Closed(Option<String>),
}

/// An open socket. Sending does not wait: a message was sent once [`TerminalSocket::is_idle`].
pub(super) struct TerminalSocket {
    inner: WebSocketStream<TcpStream>,
    unsent: bool,
}

impl TerminalSocket {
    /// Attaches by its query.
    ///
    /// # Errors
    /// [`ServerError`] where the server said no; anything else may be tried again.
    pub(super) async fn open(server: &Server, id: &str, query: &str) -> Result<Self> {
        let address = format!("ws://{}/v1/sandboxes/{id}/terminal?events=1{query}", server.host);
        let mut request = address.into_client_request()?;
        let bearer = format!("Bearer {}", server.key).parse().context("the key is malformed")?;
        request.headers_mut().insert("authorization", bearer);
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

    /// Whether everything given to it is on its way.
    pub(super) fn is_idle(&self) -> bool {
        !self.unsent
    }

    /// Gives it one message; only while it is idle. Whether that could be sent is told by `next`.
    pub(super) fn start_send(&mut self, message: Message) {
        let _ = Pin::new(&mut self.inner).start_send(message);
        self.unsent = true;
    }

    /// What comes next, where it is to be `read`; `None` when what was given has gone out. May be
    /// dropped at any time.
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
                // What the server said before it closed is still to be read.
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

    /// The first text frame, which says where this client is attached.
    pub(super) async fn attached(&mut self) -> Result<Value> {
        let first = async {
            loop {
                match self.next(true).await {
                    Some(TerminalFrame::Json(said)) if said["type"] == "attached" => {
                        return Ok(said);
                    }
                    Some(TerminalFrame::Closed(Some(why))) if !why.is_empty() => {
                        anyhow::bail!("{why}")
                    }
                    Some(TerminalFrame::Closed(_)) => anyhow::bail!("the connection is lost"),
                    _ => {}
                }
            }
        };
        timeout(ATTACH, first).await.context("the server does not answer")?
    }

    /// Closes the socket; the terminal goes on.
    pub(super) async fn close(mut self) {
        let _ = timeout(Duration::from_millis(500), self.inner.close(None)).await;
    }
}
