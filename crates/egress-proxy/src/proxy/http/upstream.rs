//! The connection to the host that a sandbox's requests are sent on.

use crate::credentials::upstream_tls;
use crate::header_size::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::policy::Destination;
use crate::proxy::connection::{DialError, Dialed, SandboxConnection, Target};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io::{Error, ErrorKind};
use std::net::SocketAddrV4;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a host may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Dials hosts for the requests of one connection, and remembers where the last one went.
pub(super) struct Dialer {
    pub(super) connection: SandboxConnection,
    /// The host whose TLS was terminated here; it is dialled by TLS too.
    pub(super) tls_host: Option<String>,
    target: Mutex<Option<Target>>,
}

/// An HTTP connection to a host.
pub(super) struct Upstream {
    destination: Destination,
    address: SocketAddrV4,
    sender: SendRequest<Incoming>,
    driver: JoinHandle<()>,
}

/// A response, and the connection that it came on.
pub(super) struct Sent {
    pub(super) response: Response<Incoming>,
    pub(super) upstream: Upstream,
}

impl Dialer {
    pub(super) fn new(connection: SandboxConnection, tls_host: Option<String>) -> Self {
        Self { connection, tls_host, target: Mutex::default() }
    }

    /// Where the last request went.
    pub(super) fn target(&self) -> Option<Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_target(&self, target: Target) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }

    async fn dial(&self, destination: &Destination) -> Result<Upstream, DialError> {
        let Dialed { stream, address } = self.connection.dial(destination).await?;
        let target = Target { destination: destination.clone(), address };
        match &self.tls_host {
            None => Upstream::handshake(target, stream).await,
            Some(name) => {
                let tls = timeout(HANDSHAKE_TIMEOUT, upstream_tls::connect(name, stream)).await;
                let tls = tls.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
                Upstream::handshake(target, tls.map_err(DialError::Failed)?).await
            }
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // After an upgrade the driver has ended on its own.
        self.driver.abort();
    }
}

impl Upstream {
    /// Whether it is open and connected to this host.
    pub(super) fn is_for(&self, destination: &Destination) -> bool {
        self.destination == *destination && !self.sender.is_closed()
    }

    pub(super) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    async fn handshake(
        target: Target,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, DialError> {
        let (sender, driver) = Builder::new()
            .preserve_header_case(true)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| DialError::Failed(Error::other(error)))?;
        let driver = tokio::spawn(async move {
            let _ = driver.with_upgrades().await;
        });
        let Target { destination, address } = target;
        Ok(Self { destination, address, sender, driver })
    }

    /// Sends a request on the given connection, or on a new one. If the host has closed the given
    /// connection before the request was sent, it is sent again on a new one.
    pub(super) async fn send(
        mut reusable: Option<Self>,
        mut request: Request<Incoming>,
        dialer: &Dialer,
        destination: &Destination,
    ) -> Result<Sent, DialError> {
        loop {
            let reused = reusable.is_some();
            let mut upstream = match reusable.take() {
                Some(upstream) => upstream,
                None => dialer.dial(destination).await?,
            };
            let address = upstream.address;
            dialer.set_target(Target { destination: destination.clone(), address });
            if let Err(error) = upstream.sender.ready().await {
                if reused {
                    continue;
                }
                return Err(DialError::Failed(Error::other(error)));
            }
            match upstream.sender.try_send_request(request).await {
                Ok(response) => return Ok(Sent { response, upstream }),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(DialError::Failed(Error::other(error.into_error()))),
                },
            }
        }
    }
}
