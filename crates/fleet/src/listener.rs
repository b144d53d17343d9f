//! Answers requests of other nodes.

use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use isolet_http::fleet::PeerHandler;
use isolet_peer::{PeerListener, PeerStream};
use isolet_wire::node::NodeName;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// How long a node may take for the head of a request, and how long a connection may be idle: longer
/// than the other node keeps it.
const HEAD_WAIT: Duration = Duration::from_secs(90);

/// Accepts connections until `stopped`; then requests that are under way are answered, and no others.
/// Aborting it ends all connections. Their number is limited by the listener.
pub(crate) async fn serve(
    mut listener: PeerListener,
    handler: PeerHandler,
    stopped: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Some((node, stream)) = accepted else { return };
                connections.spawn(answer(node, stream, handler.clone(), stopped.clone()));
            }
            Some(_) = connections.join_next() => {}
            () = stopped.cancelled() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn answer(
    node: NodeName,
    stream: PeerStream,
    handler: PeerHandler,
    stopped: CancellationToken,
) {
    let from = node.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let answered = handler(node.clone(), request.map(Body::new));
        async move { Ok::<Response<Body>, Infallible>(answered.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stopped.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        debug!(node = %from, %error, "the connection of another node ended");
    }
}
