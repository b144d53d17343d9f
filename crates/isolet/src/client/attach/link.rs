//! The terminal's WebSocket, seen from a client that counts what it has drawn.

use crate::client::{Server, refused::Refused};
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

/// What came.
pub(super) enum Came {
    /// A text frame.
    Said(Value),
    /// What the terminal shows.
    Bytes(Bytes),
    /// Something else: the server lives.
    Sign,
    /// Nothing more will; with the reason that the server gave.
    Lost(Option<String>),
}

/// An open socket. Sending waits for nobody: what was given is on its way when [`Link::idle`].
pub(super) struct Link {
    inner: WebSocketStream<TcpStream>,
    unsent: bool,
}

impl Link {
    /// Attaches by its query.
    ///
    /// # Errors
    /// [`Refused`] where the server said no; anything else may be tried again.
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
                Refused::answer(answer.status().as_u16(), body, id)
            }),
            other => other.into(),
        })?;
        Ok(Self { inner, unsent: false })
    }

    /// Whether everything given to it is on its way.
    pub(super) fn idle(&self) -> bool {
        !self.unsent
    }

    /// Gives it one message; only while it is idle. Whether that could be sent is told by `next`.
    pub(super) fn give(&mut self, message: Message) {
        let _ = Pin::new(&mut self.inner).start_send(message);
        self.unsent = true;
    }

    /// What comes next, where it is to be `read`; `None` when what was given has gone out. May be
    /// dropped at any time.
    pub(super) async fn next(&mut self, read: bool) -> Option<Came> {
        poll_fn(|context| self.turn(context, read)).await
    }

    fn turn(&mut self, context: &mut Context<'_>, read: bool) -> Poll<Option<Came>> {
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
        Pin::new(&mut self.inner).poll_next(context).map(|came| {
            Some(match came {
                Some(Ok(Message::Text(text))) => {
                    Came::Said(serde_json::from_str(&text).unwrap_or_default())
                }
                Some(Ok(Message::Binary(bytes))) => Came::Bytes(bytes),
                Some(Ok(Message::Close(close))) => {
                    Came::Lost(close.map(|close| close.reason.to_string()))
                }
                Some(Ok(_)) => Came::Sign,
                Some(Err(_)) | None => Came::Lost(None),
            })
        })
    }

    /// The first text frame, which says where this client is attached.
    pub(super) async fn attached(&mut self) -> Result<Value> {
        let first = async {
            loop {
                match self.next(true).await {
                    Some(Came::Said(said)) if said["type"] == "attached" => return Ok(said),
                    Some(Came::Lost(Some(why))) if !why.is_empty() => anyhow::bail!("{why}"),
                    Some(Came::Lost(_)) => anyhow::bail!("the connection is lost"),
                    _ => {}
                }
            }
        };
        timeout(ATTACH, first).await.context("the server does not answer")?
    }

    /// Says goodbye; the terminal runs on.
    pub(super) async fn close(mut self) {
        let _ = timeout(Duration::from_millis(500), self.inner.close(None)).await;
    }
}
