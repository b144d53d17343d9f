//! DNS over UDP: every query is answered by a task of its own.

use super::answer::{Transport, answer};
use super::upstream::UDP_BYTES_MAX;
use crate::state::table::SandboxTable;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

/// Queries of all sandboxes in flight; more are dropped, as UDP permits.
const IN_FLIGHT_MAX: usize = 2048;

/// Answers queries until the task is aborted.
pub(crate) async fn serve(sandboxes: Arc<SandboxTable>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let slots = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let mut packet = [0; UDP_BYTES_MAX];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut packet).await else { continue };
        let SocketAddr::V4(address) = peer else { continue };
        let Some(sandbox) = sandboxes.find(*address.ip()) else { continue };
        let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
        let sandboxes = sandboxes.clone();
        let socket = socket.clone();
        let query = packet[..length].to_vec();
        tokio::spawn(async move {
            if let Some(response) = answer(&sandboxes, &sandbox, &query, Transport::Udp).await {
                let _ = socket.send_to(&response, peer).await;
            }
            drop(slot);
        });
    }
}
