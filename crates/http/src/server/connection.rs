//! One connection: HTTP/1.1, one request after the other, and WebSocket by upgrade.

use crate::connection::connections::ClientConnection;
use crate::connection::head_scanner::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::connection::smuggling_guard::SmugglingGuard;
use crate::server::request::{Shared, answer};
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
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
    let service = service_fn(|request: Request<Incoming>| {
        own.mark_request();
        let shared = Arc::clone(&shared);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Arc::clone(own));
        async move { Ok::<_, Infallible>(answer(&shared, local, peer, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
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
    let stopping = async {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::pin!(stopping);
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
