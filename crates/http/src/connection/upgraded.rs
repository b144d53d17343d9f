//! The bare connection of a request whose protocol was switched.

use crate::connection::client_stream::ClientStream;
use crate::connection::smuggling_guard::SmugglingGuard;
use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::either::Either;

/// Waits until the response that switches protocols has been sent. Returns the connection without
/// the layers of HTTP, and what was read of it beyond the request; `None` when the client has
/// disconnected.
pub(crate) async fn upgraded(upgrade: OnUpgrade) -> Option<(ClientStream, Bytes)> {
    let upgraded = upgrade.await.ok()?;
    match upgraded.downcast::<TokioIo<SmugglingGuard>>() {
        // The bare connection, so that no layer in between handles each byte.
        Ok(parts) => Some((parts.io.into_inner().into_inner(), parts.read_buf)),
        // The listener for nodes has connections of its own.
        Err(other) => {
            let forwarded = Box::new(TokioIo::new(other));
            Some((Either::Right(Either::Right(forwarded)), Bytes::new()))
        }
    }
}
