//! One connection: HTTP/1.1, one request after the other, and WebSocket by upgrade.

use crate::connection::client_stream::ClientStream;
use crate::connection::connections::ClientConnection;
use crate::connection::head_scanner::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::connection::smuggling_guard::SmugglingGuard;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Scheme;
use crate::server::handshake::{self, Handshake};
use crate::server::request::{Shared, Transport, answer};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::either::Either;
use tracing::debug;

/// How long a new connection may take to send the head of its first request.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// How long a connection may be idle between requests: longer than clients keep theirs open (60 s).
const IDLE_WAIT: Duration = Duration::from_secs(75);
/// The size of the read buffer of one connection: a head, and the beginning of a body.
const READ_BYTES_MAX: usize = HEAD_BYTES_MAX;
/// How much unsent data the kernel buffers for one client. Without this limit it is up to 4 MB, and
/// a thousand clients that do not read use up the TCP memory of the machine.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// A connection on which HTTP begins.
struct Secured {
    stream: ClientStream,
    scheme: Scheme,
    /// The client speaks plain HTTP to a TLS port, so no request of it is answered.
    needs_tls: bool,
}

/// Performs the TLS handshake if the server has TLS; `None` if it failed.
async fn secure(stream: TcpStream, shared: &Shared) -> Option<Secured> {
    let plain = |stream, needs_tls| Secured {
        stream: Either::Left(stream),
        scheme: Scheme::Http,
        needs_tls,
    };
    let Some(tls) = &shared.tls else { return Some(plain(stream, false)) };
    // Boxed, like the answers below: a connection is much smaller while it only waits.
    match Box::pin(handshake::accept(stream, tls)).await {
        Ok(Handshake::Tls(tls)) => {
            let stream = Either::Right(Either::Left(tls));
            Some(Secured { stream, scheme: Scheme::Https, needs_tls: false })
        }
        Ok(Handshake::PlainHttp(stream)) => Some(plain(stream, true)),
        Err(error) => {
            debug!(%error, "TLS handshake failed");
            None
        }
    }
}

/// 400: the client speaks plain HTTP to a TLS port.
fn https_required() -> Response {
    let hint = "use https:// instead of http:// in the address";
    let status = StatusCode::BAD_REQUEST;
    ApiError::new(status, "https_required", "this server speaks HTTPS", hint).into_response()
}

pub(super) async fn serve(
    stream: TcpStream,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
    own: &Arc<ClientConnection>,
) {
    // A response is one write, so Nagle's algorithm would only delay it.
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    let Ok(local) = stream.local_addr() else { return };
    let Ok(peer) = stream.peer_addr() else { return };
    let stopping = async {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::pin!(stopping);
    let secured = tokio::select! {
        secured = secure(stream, &shared) => secured,
        () = own.close_requested() => return,
        () = &mut stopping => return,
    };
    let Some(Secured { stream, scheme, needs_tls }) = secured else { return };
    let transport = Transport { local, peer, scheme };
    let service = service_fn(|request: Request<Incoming>| {
        own.mark_request();
        let shared = Arc::clone(&shared);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Arc::clone(own));
        Box::pin(async move {
            if needs_tls {
                return Ok(https_required());
            }
            Ok::<_, Infallible>(answer(&shared, transport, request).await)
        })
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(!needs_tls)
        .header_read_timeout(IDLE_WAIT)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(READ_BYTES_MAX)
        .serve_connection(TokioIo::new(SmugglingGuard::new(stream)), service)
        .with_upgrades();
    tokio::pin!(served);
    let first = tokio::time::sleep(HEAD_WAIT);
    tokio::pin!(first);
    let mut waiting = true;
    let close_requested = own.close_requested();
    tokio::pin!(close_requested);
    let mut asked = false;
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    debug!(%error, "connection ended");
                }
                return;
            }
            () = &mut first, if waiting => {
                if !own.has_sent_request() {
                    return;
                }
                waiting = false;
            }
            () = &mut close_requested => return,
            () = &mut stopping, if !asked => {
                asked = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}
