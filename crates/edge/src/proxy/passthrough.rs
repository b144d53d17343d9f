//! Connections that are carried as they are: TLS by the name that it asks for, and protocols that
//! show no name where a rule names their port.

mod splice;

use super::connection::{Said, Target, Undialled, Visit};
use crate::sockets::reset;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// A fatal alert of TLS: access denied.
const ACCESS_DENIED: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 49];
/// How long the other side has to read why it was refused, and how much it may still say.
const PARTING: Duration = Duration::from_secs(2);
const PARTING_BYTES_MAX: u64 = 256 * 1024;

/// Carries TLS, untouched.
pub(crate) async fn tls(
    visit: &Visit,
    mut stream: TcpStream,
    changes: &mut watch::Receiver<u64>,
    head: &[u8],
    said: Said,
) {
    let dial = visit.hold(changes, || None, visit.dial(&said)).await;
    match dial {
        Some(Ok((outside, at))) => {
            carry(visit, stream, outside, changes, head, Target { said, address: at }).await;
        }
        Some(Err(Undialled::Refused(_))) => {
            if stream.write_all(&ACCESS_DENIED).await.is_ok() {
                part(stream).await;
            }
        }
        Some(Err(Undialled::Failed(_))) | None => reset(stream),
    }
}

/// Carries what shows no name.
pub(crate) async fn other(
    visit: &Visit,
    stream: TcpStream,
    changes: &mut watch::Receiver<u64>,
    head: &[u8],
) {
    let dial = visit.hold(changes, || None, visit.dial(&Said::Nothing)).await;
    match dial {
        Some(Ok((outside, at))) => {
            carry(
                visit,
                stream,
                outside,
                changes,
                head,
                Target { said: Said::Nothing, address: at },
            )
            .await;
        }
        _ => reset(stream),
    }
}

async fn carry(
    visit: &Visit,
    inside: TcpStream,
    outside: TcpStream,
    changes: &mut watch::Receiver<u64>,
    head: &[u8],
    now: Target,
) {
    let link = &visit.link;
    let work = async {
        splice::write_all(&outside, head).await?;
        link.out.fetch_add(head.len() as u64, std::sync::atomic::Ordering::Relaxed);
        splice::both(&inside, &outside, &link.out, &link.back).await
    };
    let done = visit.hold(changes, || Some(now.clone()), work).await;
    if !matches!(done, Some(Ok(()))) {
        reset(inside);
        reset(outside);
    }
}

/// Ends a connection so that the last words are read: what is not taken off a socket would make
/// its end a reset.
async fn part(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let mut rest = stream.take(PARTING_BYTES_MAX);
    let _ = timeout(PARTING, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}
