//! The listener for Prometheus alone: `GET /metrics` on loopback, without a key.
//!
//! It has no connection in common with clients, so the metrics can still be read when all
//! connections of the server are in use.

use crate::app::App;
use crate::auth::origin::{self, Arrival, ServerNames};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Scheme;
use crate::routes::metrics;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The most connections. Others wait until one of these ends.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection lasts, so that nobody holds all of them. It serves one request, and
/// Prometheus waits 10 s for an answer.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(20);
/// How long the head of the request may take: connections without one must not keep Prometheus out.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the task is aborted, which also ends the connections.
pub(super) async fn serve(listener: TcpListener, app: App) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let app = app.clone();
                connections.spawn(async move {
                    connection(stream, |local, request| answer(&app, local, request)).await;
                    drop(slot);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(
    stream: TcpStream,
    answer: impl Fn(SocketAddr, &Request<Incoming>) -> Response<Body>,
) {
    let Ok(local) = stream.local_addr() else { return };
    let service = service_fn(|request: Request<Incoming>| {
        let answered = answer(local, &request);
        async move { Ok::<Response<Body>, Infallible>(answered) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_LIFETIME, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "connection for metrics ended"),
        Err(_) => tracing::debug!("connection for metrics took too long"),
    }
}

fn answer(app: &App, local: SocketAddr, request: &Request<Incoming>) -> Response<Body> {
    let names = ServerNames::default();
    let arrival = Arrival { local, scheme: Scheme::Http };
    let refused = if let Err(failure) =
        origin::check(&names, arrival, request.uri(), request.headers())
    {
        failure
    } else if request.uri().path() != "/metrics" {
        let message = format!("there is no {} here", request.uri().path());
        ApiError::new(StatusCode::NOT_FOUND, "no_route", message, "this listener serves /metrics")
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let message = format!("/metrics is not for {}", request.method());
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "bad_method", message, "use GET")
    } else {
        match metrics::answer(app) {
            Ok(response) => return response,
            Err(failure) => failure,
        }
    };
    refused.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    /// Sixteen connections that send nothing, or no whole head, kept Prometheus out for 20 s.
    ///
    /// Promises: MT2.
    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_head_is_closed_early() {
        for sent in ["", "GET /metrics HTTP/1.1\r\nhost: x\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            client.write_all(sent.as_bytes()).await.unwrap();
            let begun = Instant::now();
            connection(stream, |_, _| Response::new(Body::empty())).await;
            let _ = client.read_to_end(&mut Vec::new()).await;
            // The clock stands still but for timers.
            assert!(begun.elapsed() < CONNECTION_LIFETIME / 2, "{sent:?}: {:?}", begun.elapsed());
        }
    }
}
