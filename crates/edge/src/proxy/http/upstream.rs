//! The connection on which a sandbox's requests go on.

use crate::credentials::upstream_tls as outside;
use crate::header_size::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::proxy::connection::{Said, Target, Undialled, Visit};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io::{Error, ErrorKind};
use std::net::SocketAddrV4;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a host may take for TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Dials hosts for the requests of one connection, and remembers where the last one went.
pub(super) struct Dialer {
    pub(super) visit: Visit,
    /// The host that TLS was spoken as.
    pub(super) tls: Option<String>,
    now: Mutex<Option<Target>>,
}

impl Dialer {
    pub(super) fn new(visit: Visit, tls: Option<String>) -> Self {
        Self { visit, tls, now: Mutex::default() }
    }

    pub(super) fn now(&self) -> Option<Target> {
        self.now.lock().expect("nobody panics with it").clone()
    }
}

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

    async fn dial(said: &Said, dialer: &Dialer) -> Result<Self, Undialled> {
        let (stream, at) = dialer.visit.dial(said).await?;
        match &dialer.tls {
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
        dialer: &Dialer,
        said: &Said,
    ) -> Result<(Response<Incoming>, Self), Undialled> {
        let mut known = known;
        loop {
            let again = known.is_some();
            let mut upstream = match known.take() {
                Some(known) => known,
                None => Self::dial(said, dialer).await?,
            };
            let target = Target { said: said.clone(), address: upstream.at };
            *dialer.now.lock().expect("nobody panics with it") = Some(target);
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
