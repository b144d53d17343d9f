//! One request to a receiver: resolve, check the address, connect, send, and read the status.
//!
//! Each attempt resolves the name once and connects to one of the addresses that it has checked, so no
//! later answer of a name server leads elsewhere. Redirects are not followed.

use crate::model::address::AddressRules;
use crate::model::message::Message;
use crate::model::url::TargetUrl;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Request, Response, body::Incoming, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tracing::debug;

/// How long an attempt may take, from resolving to the end of the answer.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(10);
/// How long a connection to one address may take to be established.
const CONNECT: Duration = Duration::from_secs(4);
/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;
/// How much of the body of an answer is read and dropped, in bytes.
const ANSWER_BYTES_MAX: usize = 4096;
/// How long reading this may take.
const BODY: Duration = Duration::from_secs(1);
/// Maximum size of the head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The name of this program in requests.
const USER_AGENT: &str = concat!("isolet/", env!("CARGO_PKG_VERSION"));

/// Why a receiver has not answered.
#[derive(Debug, thiserror::Error)]
enum SendError {
    /// One error for names without an address and for those with closed ones: a tenant cannot find out
    /// which names of the operator's network exist.
    #[error("{0} has no address that the server may connect to")]
    NoAddress(String),
    #[error("cannot connect to {host}: {error}")]
    Connect { host: String, error: io::Error },
    #[error("TLS with {host} failed: {error}")]
    Tls { host: String, error: io::Error },
    #[error("the connection ended without an answer: {0}")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be formed: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("no complete answer within {} seconds", ATTEMPT.as_secs())]
    Timeout,
}

/// How a test of a webhook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestResult {
    /// The status of the receiver's answer; `None`: there was no answer.
    pub status: Option<u16>,
    /// Why the attempt has failed; `None`: the receiver has answered with 2xx.
    pub error: Option<String>,
    /// How long it took, in ms.
    pub duration_ms: u64,
}

/// A message with its signatures, for one attempt.
pub(crate) struct Attempt<'a> {
    pub(crate) url: &'a TargetUrl,
    pub(crate) message: &'a Message,
    /// When it is sent, in seconds since 1970.
    pub(crate) timestamp: i64,
    /// Separated by spaces.
    pub(crate) signatures: String,
}

/// Sends requests to receivers.
pub(crate) struct Sender {
    addresses: AddressRules,
    /// Read when it is first needed.
    tls: Mutex<Option<Arc<ClientConfig>>>,
}

impl Sender {
    pub(crate) fn new(addresses: AddressRules) -> Self {
        Self { addresses, tls: Mutex::default() }
    }

    /// Sends a message once.
    pub(crate) async fn send(&self, attempt: Attempt<'_>) -> TestResult {
        let begun = Instant::now();
        let answer = timeout(ATTEMPT, self.exchange(attempt)).await;
        let answer = answer.unwrap_or(Err(SendError::Timeout));
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, error) = match answer {
            Ok(status) if (200..300).contains(&status) => (Some(status), None),
            Ok(status) => (Some(status), Some(format!("the receiver answered {status}"))),
            Err(error) => (None, Some(error.to_string())),
        };
        TestResult { status, error, duration_ms }
    }

    async fn exchange(&self, attempt: Attempt<'_>) -> Result<u16, SendError> {
        let url = attempt.url;
        let request = request(&attempt)?;
        let stream = self.connect(url).await?;
        if !url.is_https() {
            return status(stream, request).await;
        }
        let failed = |error| SendError::Tls { host: url.host().to_owned(), error };
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|error| failed(io::Error::other(error)))?;
        let connector = TlsConnector::from(self.tls().map_err(failed)?);
        status(connector.connect(name, stream).await.map_err(failed)?, request).await
    }

    /// Connects to an address of the host that is allowed.
    async fn connect(&self, url: &TargetUrl) -> Result<TcpStream, SendError> {
        let host = url.host();
        let found = lookup_host((host, url.port())).await;
        let found: Vec<SocketAddr> =
            found.map_err(|_| SendError::NoAddress(host.to_owned()))?.collect();
        let mut failed = SendError::NoAddress(host.to_owned());
        for address in found.into_iter().take(ADDRESSES_MAX) {
            if let Some(reason) = self.addresses.closed_here(address) {
                // For the operator alone.
                debug!(host, %address, reason, "address of a webhook is closed");
                continue;
            }
            let error = match timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => error,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            failed = SendError::Connect { host: host.to_owned(), error };
        }
        Err(failed)
    }

    /// The configuration of TLS, with the root certificates of this machine.
    fn tls(&self) -> io::Result<Arc<ClientConfig>> {
        let mut held = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*held {
            return Ok(Arc::clone(config));
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let reason = "this machine has no root certificates: install ca-certificates";
            return Err(io::Error::other(reason));
        }
        // Chosen explicitly, because another crate of the build may enable a second provider.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        *held = Some(Arc::clone(&config));
        Ok(config)
    }
}

fn request(attempt: &Attempt<'_>) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    Request::post(attempt.url.path())
        .header(header::HOST, attempt.url.host_header())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .header("webhook-id", &attempt.message.id)
        .header("webhook-timestamp", attempt.timestamp)
        .header("webhook-signature", &attempt.signatures)
        .body(Full::new(Bytes::from(attempt.message.body.clone())))
}

/// Sends the request and returns the status of the answer.
async fn status<S>(stream: S, request: Request<Full<Bytes>>) -> Result<u16, SendError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let _ = timeout(BODY, drop_body(response)).await;
        Ok(status)
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        status = &mut answer => status,
        ended = &mut connection => {
            ended?;
            answer.await
        }
    }
}

/// Reads the beginning of a body, so that a receiver can send a short answer to its end.
async fn drop_body(response: Response<Incoming>) {
    let mut body = response.into_body();
    let mut read = 0;
    while read < ANSWER_BYTES_MAX {
        match body.frame().await {
            Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error(host: &str) -> String {
        let url = TargetUrl::parse(&format!("http://{host}:9/")).unwrap();
        let message = Message::test("test_1".to_owned(), "t", "w", 0);
        let attempt =
            Attempt { url: &url, message: &message, timestamp: 0, signatures: String::new() };
        let result = Sender::new(AddressRules::default()).send(attempt).await;
        assert_eq!(result.status, None);
        result.error.unwrap().replace(host, "HOST")
    }

    /// Promises: WH4.
    #[tokio::test]
    async fn a_name_with_a_closed_address_is_answered_like_one_without() {
        // No name server is asked for either of them.
        let unknown = format!("{}.example", "x".repeat(64));
        assert_eq!(error("localhost").await, error(&unknown).await);
    }
}
