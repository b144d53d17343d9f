//! Copies bytes both ways on a connection that was upgraded, without inspecting them.

use crate::auth::cancellation::Cancellation;
use crate::connection::client_stream::{self, ClientStream};
use crate::connection::smuggling_guard::SmugglingGuard;
use crate::connection::upstream::Upstream;
use crate::limits::limiter::Permit;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use isolet_sandbox::Sandbox;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};
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

/// Starts when the response that switches protocols has been sent.
pub(super) fn spawn(
    upgrade: OnUpgrade,
    upstream: Upstream,
    sandbox: Sandbox,
    mut cancellation: Cancellation,
    permit: Permit,
) {
    tokio::spawn(async move {
        let copied = copy_both_ways(upgrade, upstream);
        tokio::select! {
            _ = copied => {}
            _ = cancellation.cancelled() => {}
        }
        // Keeps the sandbox awake while both sides are connected.
        drop((sandbox, permit));
    });
}

async fn copy_both_ways(upgrade: OnUpgrade, upstream: Upstream) -> Option<()> {
    let switched = async { tokio::join!(upgrade, upstream.into_upgraded()) };
    let (client, guest) = timeout(SWITCH_WAIT, switched).await.ok()?;
    let (mut guest, early) = guest?;
    let parts = client.ok()?.downcast::<TokioIo<SmugglingGuard>>().ok()?;
    let mut client = parts.io.into_inner().into_inner();
    set_keepalive(&client);
    client.write_all(&early).await.ok()?;
    guest.write_all(&parts.read_buf).await.ok()?;
    copy_bidirectional_with_sizes(&mut client, &mut guest, COPY_BYTES, COPY_BYTES).await.ok()?;
    Some(())
}

/// Sets TCP keepalive for a client that sends nothing.
pub(crate) fn set_keepalive(client: &ClientStream) {
    use rustix::net::sockopt;
    let client = client_stream::tcp(client);
    let (idle, pause, count) = KEEPALIVE;
    let _ = sockopt::set_socket_keepalive(client, true)
        .and_then(|()| sockopt::set_tcp_keepidle(client, idle))
        .and_then(|()| sockopt::set_tcp_keepintvl(client, pause))
        .and_then(|()| sockopt::set_tcp_keepcnt(client, count));
}
