//! Accepting, keeping alive and resetting TCP sockets.

use rustix::net::sockopt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Idle time before TCP sends the first keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Pause after a failed accept: descriptors become free when other connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The next connection; `None`: the accept failed, and may be retried.
pub(crate) async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(_) => {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Sends small segments at once, and notices a peer that has vanished.
pub(crate) fn set_keepalive(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE / 4);
    let _ = sockopt::set_tcp_keepcnt(stream, 4);
}

/// Closes a connection with RST, so that the peer sees that it was refused.
pub(crate) fn reset(stream: TcpStream) {
    let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}
