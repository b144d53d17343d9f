//! DNS over TCP: one query after the other on each connection.

use super::answer::{Transport, answer};
use crate::sockets::accept;
use crate::state::sandbox::SandboxEntry;
use crate::state::table::SandboxTable;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// How long a connection may be idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest query, in bytes.
const QUERY_BYTES_MAX: usize = 1024;
/// Queries of one connection.
const QUERIES_MAX: usize = 100;

/// Answers queries until the task is aborted.
pub(crate) async fn serve(sandboxes: Arc<SandboxTable>, listener: TcpListener) {
    loop {
        let Some((stream, peer)) = accept(&listener).await else { continue };
        let SocketAddr::V4(peer) = peer else { continue };
        let Some(sandbox) = sandboxes.find(*peer.ip()) else { continue };
        let Ok(slot) = sandbox.limits.undecided.clone().try_acquire_owned() else { continue };
        let sandboxes = sandboxes.clone();
        tokio::spawn(async move {
            let rule_changes = sandbox.rule_changes();
            tokio::select! {
                _ = answer_queries(&sandboxes, &sandbox, stream) => {}
                () = removed(rule_changes) => {}
            }
            drop(slot);
        });
    }
}

/// Waits until the sandbox is removed.
async fn removed(rule_changes: Option<tokio::sync::watch::Receiver<u64>>) {
    let Some(mut rule_changes) = rule_changes else { return };
    while rule_changes.changed().await.is_ok() {}
}

/// Answers the queries of one connection; `None`: it failed, was idle, or sent an invalid query.
async fn answer_queries(
    sandboxes: &SandboxTable,
    sandbox: &SandboxEntry,
    mut stream: TcpStream,
) -> Option<()> {
    for _ in 0..QUERIES_MAX {
        let length = usize::from(timeout(IDLE_TIMEOUT, stream.read_u16()).await.ok()?.ok()?);
        let mut query = vec![0; Some(length).filter(|length| *length <= QUERY_BYTES_MAX)?];
        timeout(IDLE_TIMEOUT, stream.read_exact(&mut query)).await.ok()?.ok()?;
        let response = answer(sandboxes, sandbox, &query, Transport::Tcp).await?;
        let mut framed = u16::try_from(response.len()).ok()?.to_be_bytes().to_vec();
        framed.extend_from_slice(&response);
        timeout(IDLE_TIMEOUT, stream.write_all(&framed)).await.ok()?.ok()?;
    }
    Some(())
}
