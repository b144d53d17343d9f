//! Forwards connections unchanged: TLS by its SNI, and protocols that name no host where a rule
//! names their port.

mod splice;

use super::connection::{DialError, Dialed, SandboxConnection, Target};
use crate::policy::Destination;
use crate::sockets::reset;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// A TLS record with the fatal alert `access_denied`.
const ACCESS_DENIED: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 49];
/// How long a denied client may take to read the alert and to close the connection.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that a denied client may still send in that time.
const LINGER_BYTES_MAX: u64 = 256 * 1024;

/// Forwards TLS without terminating it.
pub(crate) async fn tls(
    connection: &SandboxConnection,
    mut stream: TcpStream,
    rule_changes: &mut watch::Receiver<u64>,
    head: &[u8],
    destination: Destination,
) {
    let dial = connection.dial(&destination);
    let dialed = connection.run_while_allowed(rule_changes, || None, dial).await;
    match dialed {
        Some(Ok(upstream)) => {
            forward(connection, stream, upstream, rule_changes, head, destination).await;
        }
        Some(Err(DialError::Denied(_))) => {
            if stream.write_all(&ACCESS_DENIED).await.is_ok() {
                close_gracefully(stream).await;
            }
        }
        Some(Err(DialError::Failed(_))) | None => reset(stream),
    }
}

/// Forwards a protocol that names no host.
pub(crate) async fn other(
    connection: &SandboxConnection,
    stream: TcpStream,
    rule_changes: &mut watch::Receiver<u64>,
    head: &[u8],
) {
    let dial = connection.dial(&Destination::Unknown);
    let dialed = connection.run_while_allowed(rule_changes, || None, dial).await;
    match dialed {
        Some(Ok(upstream)) => {
            let destination = Destination::Unknown;
            forward(connection, stream, upstream, rule_changes, head, destination).await;
        }
        _ => reset(stream),
    }
}

/// Sends `head`, which was read already, and copies both directions until they end.
async fn forward(
    connection: &SandboxConnection,
    stream: TcpStream,
    upstream: Dialed,
    rule_changes: &mut watch::Receiver<u64>,
    head: &[u8],
    destination: Destination,
) {
    let sandbox = &connection.sandbox;
    let Dialed { stream: upstream, address } = upstream;
    let target = Target { destination, address };
    let copy = async {
        splice::write_all(&upstream, head).await?;
        sandbox.sent_bytes.fetch_add(head.len() as u64, Relaxed);
        let sent = &sandbox.sent_bytes;
        splice::both(&stream, &upstream, sent, &sandbox.received_bytes).await
    };
    let done = connection.run_while_allowed(rule_changes, || Some(target.clone()), copy).await;
    if !matches!(done, Some(Ok(()))) {
        reset(stream);
        reset(upstream);
    }
}

/// Closes a connection so that the client reads what was sent last: bytes that are left unread in
/// the socket would turn the close into a reset.
async fn close_gracefully(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let mut rest = stream.take(LINGER_BYTES_MAX);
    let _ = timeout(LINGER_TIMEOUT, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}
