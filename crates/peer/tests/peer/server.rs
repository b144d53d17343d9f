//! A server for peers, with routes that show what reaches it.

use crate::fleet::TestBody;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use isolet_peer::transport::ListenerLimits;
use isolet_peer::{PeerListener, PeerTls};
use isolet_wire::node::NodeName;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// The size of each piece of a body.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

/// What has happened at a server.
#[derive(Default)]
pub(crate) struct Seen {
    /// Connections that were accepted.
    pub(crate) accepted: AtomicUsize,
    /// Requests or bodies that are under way.
    pub(crate) under_way: AtomicUsize,
    /// Tunnels that are open.
    pub(crate) tunnels: AtomicUsize,
    /// Bytes of bodies that were handed to the connection, or taken from it.
    pub(crate) bytes: AtomicU64,
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    /// One permit for each piece that `/drain` reads.
    pub(crate) reads: Arc<Semaphore>,
    /// Closes all connections when it is increased.
    pub(crate) close: tokio::sync::watch::Sender<u32>,
    serving: JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Counts while it exists.
struct Counted(Arc<Seen>);

impl Counted {
    fn new(seen: &Arc<Seen>) -> Self {
        seen.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(seen))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Zeros of some length, whose pieces are counted.
pub(crate) struct Zeros {
    pub(crate) left: usize,
    pub(crate) seen: Arc<Seen>,
    _counted: Option<Counted>,
}

impl Zeros {
    /// A body of a request.
    pub(crate) fn new(left: usize, seen: &Arc<Seen>) -> Self {
        Self { left, seen: Arc::clone(seen), _counted: None }
    }
}

impl Body for Zeros {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let size = self.left.min(PIECE_BYTES);
        if size == 0 {
            return Poll::Ready(None);
        }
        self.left -= size;
        self.seen.bytes.fetch_add(size as u64, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; PIECE_BYTES]).slice(..size)))))
    }
}

impl TestServer {
    pub(crate) async fn start(tls: &PeerTls) -> Self {
        Self::with(tls, ListenerLimits::default()).await
    }

    pub(crate) async fn with(tls: &PeerTls, limits: ListenerLimits) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut listener = PeerListener::bind(any, tls.clone(), limits).await.unwrap();
        let address = listener.address();
        let seen = Arc::new(Seen::default());
        let reads = Arc::new(Semaphore::new(0));
        let (close, closing) = tokio::sync::watch::channel(0);
        let routes = Routes { seen: Arc::clone(&seen), reads: Arc::clone(&reads) };
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Some((node, stream)) = listener.accept().await {
                routes.seen.accepted.fetch_add(1, Ordering::SeqCst);
                let routes = routes.clone();
                let mut closing = closing.clone();
                closing.mark_unchanged();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let routes = routes.clone();
                        let node = node.clone();
                        async move { Ok::<_, Infallible>(routes.answer(&node, request).await) }
                    });
                    let io = TokioIo::new(stream);
                    let serving = http1::Builder::new().serve_connection(io, service);
                    tokio::select! {
                        _ = serving.with_upgrades() => {}
                        _ = closing.changed() => {}
                    }
                });
            }
        });
        Self { address, seen, reads, close, serving }
    }
}

#[derive(Clone)]
struct Routes {
    seen: Arc<Seen>,
    reads: Arc<Semaphore>,
}

fn full(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

impl Routes {
    async fn answer(&self, node: &NodeName, request: Request<Incoming>) -> Response<TestBody> {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/who" => Response::new(full(node.to_string())),
            "/echo" => Response::new(request.into_body().map_err(io::Error::other).boxed_unsync()),
            "/hang" => {
                let _counted = Counted::new(&self.seen);
                std::future::pending().await
            }
            "/drain" => self.drain(request).await,
            "/switch" => self.switch(request),
            headers if headers.starts_with("/headers/") => {
                let count: usize = headers.trim_start_matches("/headers/").parse().unwrap();
                let mut response = Response::new(full("many"));
                for number in 0..count {
                    response.headers_mut().append("x", number.to_string().parse().unwrap());
                }
                response
            }
            zeros => {
                let left = zeros.trim_start_matches("/zeros/").parse().unwrap();
                let counted = Some(Counted::new(&self.seen));
                let seen = Arc::clone(&self.seen);
                Response::new(Zeros { left, seen, _counted: counted }.boxed_unsync())
            }
        }
    }

    /// Reads a body, one piece for each permit, and answers with its length.
    async fn drain(&self, request: Request<Incoming>) -> Response<TestBody> {
        let _counted = Counted::new(&self.seen);
        let mut body = request.into_body();
        let mut length = 0;
        loop {
            self.reads.acquire().await.unwrap().forget();
            let Some(frame) = body.frame().await else { break };
            length += frame.unwrap().into_data().map_or(0, |data| data.len());
        }
        Response::new(full(length.to_string()))
    }

    /// Switches protocols, and sends everything back.
    fn switch(&self, mut request: Request<Incoming>) -> Response<TestBody> {
        let upgrade = hyper::upgrade::on(&mut request);
        let seen = Arc::clone(&self.seen);
        tokio::spawn(async move {
            seen.tunnels.fetch_add(1, Ordering::SeqCst);
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let (mut read, mut write) = tokio::io::split(&mut stream);
            let _ = tokio::io::copy(&mut read, &mut write).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut write).await;
            seen.tunnels.fetch_sub(1, Ordering::SeqCst);
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "upgrade")
            .header("upgrade", "echo")
            .body(full(""))
            .unwrap()
    }
}
