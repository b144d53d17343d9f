//! The requests of a call that streams: one, and then the stream stays open.

use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::oneshot;

/// Keeps the stream of requests open until it is dropped.
pub(super) struct OpenRequest {
    _open: oneshot::Sender<()>,
}

/// A stream of requests that has one. The connection sends it in a task of its own, which ends with
/// the stream of requests and not with that of the answers. So the stream must end when nobody waits
/// for answers any more: otherwise each call would stay open in etcd as long as the connection.
pub(super) fn open_request<Q>(request: Q) -> (OpenRequest, impl Stream<Item = Q> + Send + 'static)
where
    Q: Send + 'static,
{
    let (open, closed) = oneshot::channel();
    let requests = stream::iter([request]).chain(stream::pending()).take_until(closed);
    (OpenRequest { _open: open }, requests)
}
