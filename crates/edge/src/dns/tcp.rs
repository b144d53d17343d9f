//! Questions by TCP: one after the other on each connection.

use super::answer::answer;
use crate::sockets::accept;
use crate::state::sandbox::Link;
use crate::state::table::Links;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// How long a connection may say nothing.
const IDLE: Duration = Duration::from_secs(10);
/// The longest question.
const QUESTION_BYTES_MAX: usize = 1024;
/// Questions of one connection.
const QUESTIONS_MAX: usize = 100;

/// Answers until it is ended.
pub(crate) async fn serve(links: Arc<Links>, listener: TcpListener) {
    loop {
        let Some((stream, from)) = accept(&listener).await else { continue };
        let SocketAddr::V4(speaker) = from else { continue };
        let Some(link) = links.find(*speaker.ip()) else { continue };
        let Ok(room) = link.undecided.clone().try_acquire_owned() else { continue };
        let links = links.clone();
        tokio::spawn(async move {
            let changes = link.changes();
            tokio::select! {
                _ = questions(&links, &link, stream) => {}
                () = gone(changes) => {}
            }
            drop(room);
        });
    }
}

async fn gone(changes: Option<tokio::sync::watch::Receiver<u64>>) {
    let Some(mut changes) = changes else { return };
    while changes.changed().await.is_ok() {}
}

async fn questions(links: &Links, link: &Link, mut stream: TcpStream) -> Option<()> {
    for _ in 0..QUESTIONS_MAX {
        let length = usize::from(timeout(IDLE, stream.read_u16()).await.ok()?.ok()?);
        let mut question = vec![0; Some(length).filter(|length| *length <= QUESTION_BYTES_MAX)?];
        timeout(IDLE, stream.read_exact(&mut question)).await.ok()?.ok()?;
        let answer = answer(links, link, &question, false).await?;
        let mut framed = u16::try_from(answer.len()).ok()?.to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        timeout(IDLE, stream.write_all(&framed)).await.ok()?.ok()?;
    }
    Some(())
}
