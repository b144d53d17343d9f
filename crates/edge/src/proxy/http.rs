//! HTTP/1: every request of a connection is read, judged by its own `Host`, and written anew to
//! where it may go, so that nobody further on can read more requests in it than we did.

mod head_budget;
mod request;
mod upstream;

use super::connection::{Said, Target, Undialled, Visit};
use crate::header_size::{HEAD_BYTES_MAX, HEADERS_MAX};
use head_budget::{Charge, head_bytes};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use isolet_wire::network::{BAD_REQUEST, HEADERS_TOO_LONG, LIMIT, TRACE};
use request as wanted;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use upstream::{Dialer, Upstream};

/// How long a head may take, and how long a connection may stay without a request.
const HEAD: Duration = Duration::from_secs(60);

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// One connection of a sandbox: where its requests went last.
struct Door {
    dialer: Dialer,
    upstream: tokio::sync::Mutex<Option<Upstream>>,
    upgraded: Mutex<Option<(OnUpgrade, OnUpgrade)>>,
    /// For a long head; the connection ends after its response.
    charge: Mutex<Option<Charge>>,
}

/// What a connection takes, more or less, which is free when it ends.
const CONNECTION_BYTES: usize = 64 * 1024;

impl Drop for Door {
    fn drop(&mut self) {
        self.dialer.visit.links.freed.add(CONNECTION_BYTES);
    }
}

/// Serves a connection until its end, or until rules forbid what it does.
/// `tls` is the host that was spoken as, where TLS has ended here.
pub(crate) async fn serve(
    visit: Visit,
    inside: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    tls: Option<String>,
    changes: &mut watch::Receiver<u64>,
) {
    let door = Arc::new(Door {
        dialer: Dialer::new(visit, tls),
        upstream: tokio::sync::Mutex::default(),
        upgraded: Mutex::default(),
        charge: Mutex::default(),
    });
    let work = async {
        let service = service_fn(|request| {
            let door = door.clone();
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .half_close(true)
            .preserve_header_case(true)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(inside), service)
            .with_upgrades()
            .await;
        if served.is_err_and(|error| error.is_parse() && door.now().is_none()) {
            door.visit().refuse(&Said::Nothing, BAD_REQUEST);
        }
        let upgraded = door.upgraded.lock().expect("nobody panics with it").take();
        if let Some((inside, outside)) = upgraded {
            through(inside, outside).await;
        }
    };
    door.visit().hold(changes, || door.now(), work).await;
}

/// After an upgrade: bytes, both ways.
async fn through(inside: OnUpgrade, outside: OnUpgrade) {
    let (Ok(inside), Ok(outside)) = tokio::join!(inside, outside) else { return };
    let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
    let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
}

impl Door {
    fn visit(&self) -> &Visit {
        &self.dialer.visit
    }

    fn now(&self) -> Option<Target> {
        self.dialer.now()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let said = match wanted::wanted(&request) {
            Ok(said) => said,
            Err(reason) => {
                self.visit().refuse(&Said::Nothing, reason);
                let text = format!("this request was refused ({reason})");
                return plain(StatusCode::BAD_REQUEST, &text);
            }
        };
        if let Some(reason) = self.misled(&request, &said) {
            self.visit().refuse(&said, reason);
            let text = format!("this request was refused ({reason})");
            return plain(StatusCode::MISDIRECTED_REQUEST, &text);
        }
        let (mut response, long) = match self.ready(request, &said) {
            Ok((request, long)) => (self.forwarded(request, &said).await, long),
            Err((status, rule, text)) => {
                self.visit().refuse(&said, rule);
                (plain(status, text), true)
            }
        };
        if long && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            wanted::close(response.headers_mut());
        }
        response
    }

    /// The host's response, or why there is none.
    async fn forwarded(&self, request: Request<Incoming>, said: &Said) -> Response<Body> {
        match self.passed(request, said).await {
            Ok(response) => response,
            Err(Undialled::Refused(rule)) => {
                let (host, port) = (self.visit().host(said), self.visit().to.port());
                let text = format!(
                    "connecting to {host}:{port} is refused in this sandbox (rule: {rule}); \
                     whoever made the sandbox can allow it in its network rules"
                );
                plain(StatusCode::FORBIDDEN, &text)
            }
            Err(Undialled::Failed(error)) => {
                let host = self.visit().host(said);
                plain(StatusCode::BAD_GATEWAY, &format!("{host} does not answer: {error}"))
            }
        }
    }

    /// Why a request may not have what is lent, and is not for anybody else either.
    fn misled<B>(&self, request: &Request<B>, said: &Said) -> Option<&'static str> {
        let named = match said {
            Said::Name(name) => Some(name),
            _ => None,
        };
        if self.dialer.tls.is_some() && self.dialer.tls.as_ref() != named {
            return Some("other host");
        }
        // It would be answered with what was put into it.
        let lent = named.is_some_and(|name| self.lent(name));
        (lent && wanted::repeats(request)).then_some(TRACE)
    }

    fn lent(&self, name: &str) -> bool {
        self.visit().link.lent().to(name, self.visit().to.port(), self.dialer.tls.is_some())
    }

    /// The request as it goes on, with its credentials, and whether its head is long.
    fn ready(
        &self,
        mut request: Request<Incoming>,
        said: &Said,
    ) -> Result<(Request<Incoming>, bool), Unready> {
        let came = head_bytes(&request);
        wanted::clean(&mut request);
        if let Said::Name(name) = said {
            let (lent, port) = (self.visit().link.lent(), self.visit().to.port());
            let put = lent.put(request.headers_mut(), name, port, self.dialer.tls.is_some());
            put.map_err(|_| TOO_LONG)?;
        }
        let goes = head_bytes(&request);
        let charge = Charge::new(&self.visit().link, came, goes).map_err(|_| TOO_MANY)?;
        let long = charge.is_some();
        if long && !wanted::upgrades(&request) {
            wanted::close(request.headers_mut());
        }
        *self.charge.lock().expect("nobody panics with it") = charge;
        Ok((request, long))
    }

    async fn passed(
        &self,
        mut request: Request<Incoming>,
        said: &Said,
    ) -> Result<Response<Body>, Undialled> {
        let inside = hyper::upgrade::on(&mut request);
        let mut upstream = self.upstream.lock().await;
        // Rules may have come since the last request.
        let known = upstream.take().filter(|upstream| upstream.serves(said));
        let known = match known {
            Some(known) if self.visit().still(said, known.at()) => Some(known),
            _ => None,
        };
        let (mut response, used) = Upstream::send(known, request, &self.dialer, said).await?;
        *upstream = Some(used);
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let outside = hyper::upgrade::on(&mut response);
            *self.upgraded.lock().expect("nobody panics with it") = Some((inside, outside));
            // The buffers of heads end with HTTP.
            self.charge.lock().expect("nobody panics with it").take();
        } else {
            wanted::clean_answer(&mut response);
        }
        Ok(response.map(|body| body.boxed_unsync()))
    }
}

/// Why a request does not go on: the status, the rule that is noted, and the text of the answer.
type Unready = (StatusCode, &'static str, &'static str);
const TOO_LONG: Unready = (
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    HEADERS_TOO_LONG,
    "the headers of this request are longer than 128 KiB with the credentials in place of their \
     placeholders; use each placeholder once",
);
const TOO_MANY: Unready = (
    StatusCode::TOO_MANY_REQUESTS,
    LIMIT,
    "this sandbox has too many requests with more than 16 KiB of headers at once; wait for their \
     responses, then retry",
);

/// An answer of our own.
fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("isolet: {text}\n"))).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
