//! Options of TCP connections between nodes.

use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// Idle time after which the kernel asks whether the peer is still reachable.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// After how many unanswered questions the connection ends: after 25 s in all.
const KEEPALIVE_COUNT: u32 = 3;
/// How long sent data may stay without an acknowledgement before the connection ends, in
/// milliseconds.
const UNACKNOWLEDGED_MS: u32 = 25_000;

/// Sends small packets at once, and notices a peer that the network has lost.
pub(super) fn configure(tcp: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(tcp, true)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_COUNT)?;
    sockopt::set_tcp_user_timeout(tcp, UNACKNOWLEDGED_MS)?;
    Ok(())
}
