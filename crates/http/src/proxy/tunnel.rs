//! Copies bytes both ways on a connection that was upgraded, without inspecting them.

use crate::auth::cancellation::Cancellation;
use crate::connection::client_stream::{self, ClientStream};
use crate::connection::upgraded::upgraded;
use hyper::upgrade::OnUpgrade;
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::time::timeout;

/// How long either side may take to upgrade.
const SWITCH_WAIT: Duration = Duration::from_secs(10);
/// The buffer for each direction.
const COPY_BYTES: usize = 32 * 1024;
/// TCP keepalive detects clients that vanished: idle time, interval and number of probes.
///
/// A listener with `stalled_s` sets a user timeout, which overrides the number of probes. It stays
/// in force here: a client with a closed window answers probes, and would never be disconnected.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// Starts when the response that switches protocols has been sent. `other` resolves to the other
/// side, and what was read of it already. `held` is dropped when both sides have disconnected: it
/// keeps the sandbox awake and holds the permit of the request.
pub(crate) fn spawn<S>(
    upgrade: OnUpgrade,
    other: impl Future<Output = Option<(S, Vec<u8>)>> + Send + 'static,
    mut cancellation: Cancellation,
    held: impl Send + 'static,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        let copied = copy_both_ways(upgrade, other);
        tokio::select! {
            _ = copied => {}
            _ = cancellation.cancelled() => {}
        }
        drop(held);
    });
}

async fn copy_both_ways<S: AsyncRead + AsyncWrite + Unpin>(
    upgrade: OnUpgrade,
    other: impl Future<Output = Option<(S, Vec<u8>)>>,
) -> Option<()> {
    let switched = async { tokio::join!(upgraded(upgrade), other) };
    let (client, other) = timeout(SWITCH_WAIT, switched).await.ok()?;
    let (mut other, early) = other?;
    let (mut client, read) = client?;
    set_keepalive(&client);
    client.write_all(&early).await.ok()?;
    other.write_all(&read).await.ok()?;
    copy_bidirectional_with_sizes(&mut client, &mut other, COPY_BYTES, COPY_BYTES).await.ok()?;
    Some(())
}

/// Sets TCP keepalive for a client that sends nothing.
pub(crate) fn set_keepalive(client: &ClientStream) {
    use rustix::net::sockopt;
    let Some(client) = client_stream::tcp(client) else { return };
    let (idle, pause, count) = KEEPALIVE;
    let _ = sockopt::set_socket_keepalive(client, true)
        .and_then(|()| sockopt::set_tcp_keepidle(client, idle))
        .and_then(|()| sockopt::set_tcp_keepintvl(client, pause))
        .and_then(|()| sockopt::set_tcp_keepcnt(client, count));
}
