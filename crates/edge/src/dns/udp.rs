//! Questions by UDP.

use super::answer::answer;
use super::upstream::UDP_BYTES_MAX;
use crate::state::table::Links;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

/// Questions of all links that are worked on at the same time; further ones are lost, as by UDP
/// they may be.
const WORKED_ON_MAX: usize = 2048;

/// Answers until it is ended.
pub(crate) async fn serve(links: Arc<Links>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let room = Arc::new(Semaphore::new(WORKED_ON_MAX));
    let mut packet = [0; UDP_BYTES_MAX];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut packet).await else { continue };
        let SocketAddr::V4(speaker) = from else { continue };
        let Some(link) = links.find(*speaker.ip()) else { continue };
        let Ok(room) = room.clone().try_acquire_owned() else { continue };
        let (links, socket, question) = (links.clone(), socket.clone(), packet[..length].to_vec());
        tokio::spawn(async move {
            if let Some(answer) = answer(&links, &link, &question, true).await {
                let _ = socket.send_to(&answer, from).await;
            }
            drop(room);
        });
    }
}
