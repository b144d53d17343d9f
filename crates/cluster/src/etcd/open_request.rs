//! The requests of a call that streams: one at the beginning, and further ones while the stream is
//! open.

use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::mpsc;

/// Requests that wait until the connection takes them. Further ones are dropped.
const WAITING_MAX: usize = 1;

/// Keeps the stream of requests open until it is dropped.
pub(super) struct OpenRequest<Q> {
    further: mpsc::Sender<Q>,
}

impl<Q> OpenRequest<Q> {
    /// Sends a further request, unless one still waits to be sent.
    pub(super) fn send(&self, request: Q) {
        let _ = self.further.try_send(request);
    }
}

/// A stream of requests that begins with one. The connection sends it in a task of its own, which ends
/// with the stream of requests and not with that of the answers. So the stream must end when nobody
/// waits for answers any more: otherwise each call would stay open in etcd as long as the connection.
pub(super) fn open_request<Q>(
    request: Q,
) -> (OpenRequest<Q>, impl Stream<Item = Q> + Send + 'static)
where
    Q: Send + 'static,
{
    let (further, waiting) = mpsc::channel(WAITING_MAX);
    let waiting = stream::unfold(waiting, async |mut waiting| {
        let request = waiting.recv().await?;
        Some((request, waiting))
    });
    (OpenRequest { further }, stream::iter([request]).chain(waiting))
}
