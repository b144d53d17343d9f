//! Accepting, keeping alive and resetting TCP sockets.

use rustix::net::sockopt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Silent connections are asked after this long whether somebody is there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// The next connection; `None`: not now.
pub(crate) async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(_) => {
            // Descriptors come back when others end.
            tokio::time::sleep(Duration::from_millis(20)).await;
            None
        }
    }
}

/// Small things at once, and whoever went away is noticed.
pub(crate) fn kept_alive(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE / 4);
    let _ = sockopt::set_tcp_keepcnt(stream, 4);
}

/// Ends a connection so that the other side sees that it was refused.
pub(crate) fn reset(stream: TcpStream) {
    let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}
