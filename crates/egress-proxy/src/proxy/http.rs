//! Proxies HTTP/1. Each request is parsed, checked by its own `Host`, and serialised again for its
//! host, so that no server behind the proxy can read other requests in it (request smuggling).

mod head_budget;
mod request;
mod upstream;

use super::connection::{DialError, SandboxConnection, Target};
use crate::header_size::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::policy::Destination;
use head_budget::{HeadCharge, head_bytes};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use isolet_wire::network::{BAD_REQUEST, HEADERS_TOO_LONG, LIMIT, TRACE};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use upstream::{Dialer, Upstream};

/// How long a head may take, and how long a connection may stay open without a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Estimate of the memory that a connection frees when it ends, in bytes.
const CONNECTION_BYTES: usize = 64 * 1024;

type ProxyBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// One connection of a sandbox, and the upstream connection of its last request.
struct HttpSession {
    dialer: Dialer,
    upstream: tokio::sync::Mutex<Option<Upstream>>,
    upgrade: Mutex<Option<Upgrade>>,
    /// Held for a request with a long head; the connection closes after its response.
    head_charge: Mutex<Option<HeadCharge>>,
}

/// Both sides of a connection that leaves HTTP.
struct Upgrade {
    sandbox: OnUpgrade,
    upstream: OnUpgrade,
}

impl Drop for HttpSession {
    fn drop(&mut self) {
        self.connection().sandboxes.freed_memory.add(CONNECTION_BYTES);
    }
}

/// Serves a connection until it ends, or until the rules forbid it. `tls_host` is the host whose
/// TLS was terminated here.
pub(crate) async fn serve(
    connection: SandboxConnection,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    tls_host: Option<String>,
    rule_changes: &mut watch::Receiver<u64>,
) {
    let session = Arc::new(HttpSession {
        dialer: Dialer::new(connection, tls_host),
        upstream: tokio::sync::Mutex::default(),
        upgrade: Mutex::default(),
        head_charge: Mutex::default(),
    });
    let work = async {
        let service = service_fn(|request| {
            let session = session.clone();
            async move { Ok::<_, Infallible>(session.respond(request).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .half_close(true)
            .preserve_header_case(true)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
        if served.is_err_and(|error| error.is_parse() && session.target().is_none()) {
            session.connection().log_denied(&Destination::Unknown, BAD_REQUEST);
        }
        let upgrade = session.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(upgrade) = upgrade {
            copy_upgraded(upgrade).await;
        }
    };
    session.connection().run_while_allowed(rule_changes, || session.target(), work).await;
}

/// Copies bytes in both directions after an upgrade.
async fn copy_upgraded(upgrade: Upgrade) {
    let Upgrade { sandbox, upstream } = upgrade;
    let (Ok(sandbox), Ok(upstream)) = tokio::join!(sandbox, upstream) else { return };
    let mut sandbox = TokioIo::new(sandbox);
    let mut upstream = TokioIo::new(upstream);
    let _ = tokio::io::copy_bidirectional(&mut sandbox, &mut upstream).await;
}

impl HttpSession {
    fn connection(&self) -> &SandboxConnection {
        &self.dialer.connection
    }

    fn target(&self) -> Option<Target> {
        self.dialer.target()
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<ProxyBody> {
        let destination = match request::destination(&request) {
            Ok(destination) => destination,
            Err(reason) => {
                self.connection().log_denied(&Destination::Unknown, reason);
                let text = format!("this request was refused ({reason})");
                return plain_text(StatusCode::BAD_REQUEST, &text);
            }
        };
        if let Some(reason) = self.misdirected(&request, &destination) {
            self.connection().log_denied(&destination, reason);
            let text = format!("this request was refused ({reason})");
            return plain_text(StatusCode::MISDIRECTED_REQUEST, &text);
        }
        let (mut response, closes) = match self.prepare(request, &destination) {
            Ok(PreparedRequest { request, has_long_head }) => {
                (self.forward(request, &destination).await, has_long_head)
            }
            Err(rejection) => {
                self.connection().log_denied(&destination, rejection.rule);
                (plain_text(rejection.status, rejection.text), true)
            }
        };
        if closes && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            request::set_connection_close(response.headers_mut());
        }
        response
    }

    /// The host's response, or one that says why there is none.
    async fn forward(
        &self,
        request: Request<Incoming>,
        destination: &Destination,
    ) -> Response<ProxyBody> {
        let connection = self.connection();
        match self.send(request, destination).await {
            Ok(response) => response,
            Err(DialError::Denied(rule)) => {
                let host = connection.host(destination);
                let port = connection.original.port();
                let text = format!(
                    "this sandbox may not connect to {host}:{port} (rule: {rule}); \
                     its owner can allow it in the network rules of the sandbox"
                );
                plain_text(StatusCode::FORBIDDEN, &text)
            }
            Err(DialError::Failed(error)) => {
                let host = connection.host(destination);
                plain_text(StatusCode::BAD_GATEWAY, &format!("{host} does not answer: {error}"))
            }
        }
    }

    /// Why a request must go neither to the host that credentials are injected for, nor to another.
    fn misdirected<B>(
        &self,
        request: &Request<B>,
        destination: &Destination,
    ) -> Option<&'static str> {
        let name = match destination {
            Destination::Name(name) => Some(name),
            _ => None,
        };
        let tls_host = self.dialer.tls_host.as_ref();
        if tls_host.is_some() && tls_host != name {
            return Some("other host");
        }
        // The response would contain the credentials.
        let injected = name.is_some_and(|name| self.has_credentials(name));
        (injected && request::is_echoed(request)).then_some(TRACE)
    }

    fn has_credentials(&self, name: &str) -> bool {
        let connection = self.connection();
        let port = connection.original.port();
        let tls = self.dialer.tls_host.is_some();
        connection.sandbox.credentials().apply_to(name, port, tls)
    }

    /// Removes the hop-by-hop headers of the request, and injects the credentials.
    fn prepare(
        &self,
        mut request: Request<Incoming>,
        destination: &Destination,
    ) -> Result<PreparedRequest, HttpRejection> {
        let sandbox = &self.connection().sandbox;
        let received_bytes = head_bytes(&request);
        request::strip_hop_headers(&mut request);
        if let Destination::Name(name) = destination {
            let credentials = sandbox.credentials();
            let port = self.connection().original.port();
            let tls = self.dialer.tls_host.is_some();
            let injected = credentials.inject(request.headers_mut(), name, port, tls);
            injected.map_err(|_| HEADERS_REJECTED)?;
        }
        let sent_bytes = head_bytes(&request);
        let charge = HeadCharge::new(sandbox, received_bytes, sent_bytes);
        let charge = charge.map_err(|_| BUDGET_REJECTED)?;
        let has_long_head = charge.is_some();
        if has_long_head && !request::is_upgrade(&request) {
            request::set_connection_close(request.headers_mut());
        }
        *self.head_charge.lock().unwrap_or_else(PoisonError::into_inner) = charge;
        Ok(PreparedRequest { request, has_long_head })
    }

    async fn send(
        &self,
        mut request: Request<Incoming>,
        destination: &Destination,
    ) -> Result<Response<ProxyBody>, DialError> {
        let sandbox_upgrade = hyper::upgrade::on(&mut request);
        let mut upstream = self.upstream.lock().await;
        // The rules may have changed since the last request.
        let reusable = upstream.take().filter(|upstream| {
            upstream.is_for(destination)
                && self.connection().may_reuse(destination, upstream.address())
        });
        let sent = Upstream::send(reusable, request, &self.dialer, destination).await?;
        let mut response = sent.response;
        *upstream = Some(sent.upstream);
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgrade =
                Upgrade { sandbox: sandbox_upgrade, upstream: hyper::upgrade::on(&mut response) };
            *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
            // The buffers of heads are dropped together with HTTP.
            self.head_charge.lock().unwrap_or_else(PoisonError::into_inner).take();
        } else {
            request::strip_response_hop_headers(&mut response);
        }
        Ok(response.map(|body| body.boxed_unsync()))
    }
}

/// A request that may be sent to its host.
struct PreparedRequest {
    request: Request<Incoming>,
    has_long_head: bool,
}

/// Why a request is not sent.
struct HttpRejection {
    status: StatusCode,
    /// What the denial log names as the rule.
    rule: &'static str,
    /// The body of the response.
    text: &'static str,
}

const HEADERS_REJECTED: HttpRejection = HttpRejection {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    rule: HEADERS_TOO_LONG,
    text: "the headers of this request are longer than 128 KiB with the credentials in place of \
           their placeholders; use each placeholder once",
};
const BUDGET_REJECTED: HttpRejection = HttpRejection {
    status: StatusCode::TOO_MANY_REQUESTS,
    rule: LIMIT,
    text: "this sandbox has too many requests with more than 16 KiB of headers at once; wait for \
           their responses, then retry",
};

/// A response of the proxy itself.
fn plain_text(status: StatusCode, text: &str) -> Response<ProxyBody> {
    let body = Full::new(Bytes::from(format!("isolet: {text}\n"))).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
