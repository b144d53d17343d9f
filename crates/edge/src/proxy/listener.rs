//! Connections: taken in, looked at, judged, carried.

use super::client_hello as hello;
use super::connection::{Said, Visit};
use super::counted_stream::Inside;
use super::protocol::{self as sniff, Spoken};
use super::{http, passthrough as through, tls_terminate as ended};
use crate::sockets::{accept, kept_alive, reset};
use crate::state::table::Links;
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

/// How long a connection may take to show where it wants to go.
const HEAD: Duration = Duration::from_secs(15);
/// How long somebody who may speak any protocol is waited for: of some the other side speaks first.
const SILENCE: Duration = Duration::from_millis(200);
/// Connections of all links: each takes up to six descriptors.
const CONNECTIONS_MAX: usize = 16 * 1024;
const DESCRIPTORS_EACH: u64 = 6;

/// Takes connections in until it is ended.
pub(crate) async fn serve(links: Arc<Links>, listener: TcpListener) {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let room = descriptors.map_or(CONNECTIONS_MAX, |most| (most / DESCRIPTORS_EACH) as usize);
    let room = Arc::new(Semaphore::new(room.min(CONNECTIONS_MAX)));
    let own = listener.local_addr().ok();
    loop {
        let Some((stream, from)) = accept(&listener).await else { continue };
        let SocketAddr::V4(speaker) = from else { continue };
        let Some(link) = links.find(*speaker.ip()) else {
            reset(stream);
            continue;
        };
        let to = sockopt::ip_original_dst(&stream).ok();
        // Without a redirection the kernel tells our own address.
        let Some(to) = to.filter(|to| own != Some(SocketAddr::V4(*to))) else {
            let port = own.map_or(0, |own| own.port());
            links.refused(&link, "gateway", port, "host");
            reset(stream);
            continue;
        };
        let visit = Visit { links: links.clone(), link: link.clone(), to };
        if let Some(why) = visit.closed(*to.ip()) {
            visit.refuse(&Said::Nothing, why);
            reset(stream);
            continue;
        }
        let rooms = [room.clone(), link.carried.clone(), link.undecided.clone()];
        let rooms = rooms.map(|room| room.try_acquire_owned().ok());
        let ([Some(all), Some(carried), Some(undecided)], Some(changes)) = (rooms, link.changes())
        else {
            visit.refuse(&Said::Nothing, "limit");
            reset(stream);
            continue;
        };
        kept_alive(&stream);
        tokio::spawn(async move {
            visited(visit, stream, changes, undecided).await;
            drop((all, carried));
        });
    }
}

async fn visited(
    visit: Visit,
    mut stream: TcpStream,
    mut changes: watch::Receiver<u64>,
    undecided: OwnedSemaphorePermit,
) {
    let mut head = Vec::new();
    let first = first(&visit, &mut stream, &mut head);
    let first = visit.hold(&mut changes, || None, timeout(HEAD, first)).await;
    drop(undecided);
    match first {
        Some(Ok(Some(First::Tls(said)))) => match visit.ends(&said) {
            Some((name, authority)) => {
                let inside = Inside::new(stream, head, visit.link.clone());
                ended::serve(visit, inside, &name, &authority, &mut changes).await;
            }
            None => through::tls(&visit, stream, &mut changes, &head, said).await,
        },
        Some(Ok(Some(First::Http))) => {
            let inside = Inside::new(stream, head, visit.link.clone());
            http::serve(visit, inside, None, &mut changes).await;
        }
        Some(Ok(Some(First::Other))) => through::other(&visit, stream, &mut changes, &head).await,
        // It ended, or said nothing for too long.
        Some(_) => reset(stream),
        None => reset(stream),
    }
}

/// What a connection begins with.
enum First {
    Tls(Said),
    Http,
    Other,
}

/// Reads until it is clear; `None`: it ended before.
async fn first(visit: &Visit, stream: &mut TcpStream, head: &mut Vec<u8>) -> Option<First> {
    let names = visit.link.names(*visit.to.ip());
    let free = crate::policy::may_be_unnamed(&visit.link.policy(), visit.to, &names);
    loop {
        match sniff::spoken(head, !free) {
            Spoken::Tls => break,
            Spoken::Http => return Some(First::Http),
            Spoken::Other => return Some(First::Other),
            Spoken::Unsaid => {}
        }
        let more = stream.read_buf(head);
        let length = match free {
            true => match timeout(SILENCE, more).await {
                Ok(length) => length,
                Err(_) => return Some(First::Other),
            },
            false => more.await,
        };
        if length.ok()? == 0 {
            return None;
        }
    }
    loop {
        match hello::read(head) {
            Ok(Some(hello::Hello { name, hidden: true })) => {
                return Some(First::Tls(Said::Hidden(name)));
            }
            Ok(Some(hello::Hello { name: None, .. })) => return Some(First::Tls(Said::Nameless)),
            Ok(Some(hello::Hello { name: Some(name), .. })) => {
                return Some(First::Tls(Said::Name(name)));
            }
            Ok(None) if head.len() < hello::HELLO_BYTES_MAX => {}
            _ => return Some(First::Other),
        }
        if stream.read_buf(head).await.ok()? == 0 {
            return None;
        }
    }
}
