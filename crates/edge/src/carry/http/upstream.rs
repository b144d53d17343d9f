//! The connection on which a sandbox's requests go on.

use super::{Door, HEAD_BYTES_MAX, HEADERS_MAX};
use crate::carry::visit::{Said, Undialled};
use crate::lend::outside;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io::{Error, ErrorKind};
use std::net::SocketAddrV4;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a host may take for TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection to a host.
pub(super) struct Upstream {
    said: Said,
    at: SocketAddrV4,
    send: SendRequest<Incoming>,
    work: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // After an upgrade the work has ended by itself.
        self.work.abort();
    }
}

impl Upstream {
    /// Whether it goes to the host that is asked for, and lives.
    pub(super) fn serves(&self, said: &Said) -> bool {
        self.said == *said && !self.send.is_closed()
    }

    pub(super) fn at(&self) -> SocketAddrV4 {
        self.at
    }

    async fn dial(said: &Said, door: &Door) -> Result<Self, Undialled> {
        let (stream, at) = door.visit.dial(said).await?;
        match &door.tls {
            None => Self::begin(said, at, stream).await,
            Some(name) => {
                let secured = timeout(HANDSHAKE, outside::connect(name, stream)).await;
                let secured = secured.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
                Self::begin(said, at, secured.map_err(Undialled::Failed)?).await
            }
        }
    }

    async fn begin(
        said: &Said,
        at: SocketAddrV4,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Undialled> {
        let (send, work) = Builder::new()
            .preserve_header_case(true)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Undialled::Failed(Error::other(error)))?;
        let work = tokio::spawn(async move {
            let _ = work.with_upgrades().await;
        });
        Ok(Self { said: said.clone(), at, send, work })
    }

    /// Sends a request on a connection that is there, or on a new one; notes where it
    /// goes. One that was not begun to be sent, since the host closed, is sent again.
    pub(super) async fn send(
        known: Option<Self>,
        mut request: Request<Incoming>,
        door: &Door,
        said: &Said,
    ) -> Result<(Response<Incoming>, Self), Undialled> {
        let mut known = known;
        loop {
            let again = known.is_some();
            let mut upstream = match known.take() {
                Some(known) => known,
                None => Self::dial(said, door).await?,
            };
            *door.now.lock().expect("nobody panics with it") = Some((said.clone(), upstream.at));
            if let Err(error) = upstream.send.ready().await {
                if again {
                    continue;
                }
                return Err(Undialled::Failed(Error::other(error)));
            }
            match upstream.send.try_send_request(request).await {
                Ok(response) => return Ok((response, upstream)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if again => request = unsent,
                    _ => return Err(Undialled::Failed(Error::other(error.into_error()))),
                },
            }
        }
    }
}
