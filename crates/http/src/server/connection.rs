//! One connection: HTTP/1.1, one request after the other, and WebSocket by upgrade.

use crate::{
    connection::{
        connections::Connection,
        head_scanner::{HEAD_BYTES_MAX, HEADERS_MAX},
        smuggling_guard::SmugglingGuard,
    },
    server::request::{Shared, answer},
};
use axum::{body::Body, http::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{net::TcpStream, sync::watch};
use tracing::debug;

/// How long a new connection may take over its first request's head.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// How long a kept connection may be silent: longer than clients keep theirs (60 s).
const IDLE_WAIT: Duration = Duration::from_secs(75);
/// Read of one connection before it is taken: a head, and a body's first part.
const READ_BYTES_MAX: usize = HEAD_BYTES_MAX;
/// What the kernel holds for one client beyond what is on its way to it. Without this it is up to
/// 4 MB, and a thousand clients that do not read take the memory that all TCP of the machine has.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

pub(super) async fn serve(
    stream: TcpStream,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
    own: &Arc<Connection>,
) {
    // An answer is one write: waiting for more of it would only cost time.
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return };
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
