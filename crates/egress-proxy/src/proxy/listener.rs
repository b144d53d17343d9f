//! The accept loop: learn what each connection speaks, then hand it to `passthrough`, `http` or
//! `tls_terminate`.

use super::client_hello::{self, ClientHello, HELLO_BYTES_MAX};
use super::connection::SandboxConnection;
use super::counted_stream::CountedStream;
use super::protocol::{Protocol, detect};
use super::{http, passthrough, tls_terminate};
use crate::policy::{Destination, may_be_unnamed};
use crate::sockets::{accept, reset, set_keepalive};
use crate::state::sandbox::SandboxEntry;
use crate::state::table::SandboxTable;
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

/// How long a connection may take to show which host it asks for.
const DETECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long to wait for the first bytes where any protocol is allowed: in some of them the server
/// speaks first.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(200);
/// Connections of all sandboxes.
const CONNECTIONS_MAX: usize = 16 * 1024;
/// Descriptors that one connection takes at most.
const DESCRIPTORS_PER_CONNECTION: u64 = 6;

/// Accepts connections until the task is aborted.
pub(crate) async fn serve(sandboxes: Arc<SandboxTable>, listener: TcpListener) {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let affordable =
        descriptors.map_or(CONNECTIONS_MAX, |max| (max / DESCRIPTORS_PER_CONNECTION) as usize);
    let slots = Arc::new(Semaphore::new(affordable.min(CONNECTIONS_MAX)));
    let own_address = listener.local_addr().ok();
    loop {
        let Some((stream, peer)) = accept(&listener).await else { continue };
        let SocketAddr::V4(peer) = peer else { continue };
        let Some(sandbox) = sandboxes.find(*peer.ip()) else {
            reset(stream);
            continue;
        };
        let original = sockopt::ip_original_dst(&stream).ok();
        // Without a redirection the kernel returns our own address.
        let redirected = original.filter(|address| own_address != Some(SocketAddr::V4(*address)));
        let Some(original) = redirected else {
            let port = own_address.map_or(0, |address| address.port());
            sandboxes.log_denied_connection(&sandbox, "gateway", port, "host");
            reset(stream);
            continue;
        };
        let connection =
            SandboxConnection { sandboxes: sandboxes.clone(), sandbox: sandbox.clone(), original };
        if let Some(reason) = connection.closed(*original.ip()) {
            connection.log_denied(&Destination::Unknown, reason);
            reset(stream);
            continue;
        }
        let permits = Permits::acquire(&slots, &sandbox);
        let Some((permits, rule_changes)) = permits.zip(sandbox.rule_changes()) else {
            connection.log_denied(&Destination::Unknown, "limit");
            reset(stream);
            continue;
        };
        set_keepalive(&stream);
        tokio::spawn(async move {
            proxy(connection, stream, rule_changes, permits.undecided).await;
            drop(permits.slots);
        });
    }
}

/// The permits of one connection.
struct Permits {
    /// Of the limits on the connections of all sandboxes, and of this one.
    slots: [OwnedSemaphorePermit; 2],
    /// Of the limit on connections that have not yet shown which host they ask for.
    undecided: OwnedSemaphorePermit,
}

impl Permits {
    /// `None` when a limit is reached.
    fn acquire(slots: &Arc<Semaphore>, sandbox: &SandboxEntry) -> Option<Self> {
        let slot = slots.clone().try_acquire_owned().ok()?;
        let own_slot = sandbox.limits.connections.clone().try_acquire_owned().ok()?;
        let undecided = sandbox.limits.undecided.clone().try_acquire_owned().ok()?;
        Some(Self { slots: [slot, own_slot], undecided })
    }
}

/// Serves one connection to its end. `undecided` is held until the protocol is known.
async fn proxy(
    connection: SandboxConnection,
    mut stream: TcpStream,
    mut rule_changes: watch::Receiver<u64>,
    undecided: OwnedSemaphorePermit,
) {
    let mut head = Vec::new();
    let detected = timeout(DETECT_TIMEOUT, read_head(&connection, &mut stream, &mut head));
    let detected = connection.run_while_allowed(&mut rule_changes, || None, detected).await;
    drop(undecided);
    let Some(Ok(Some(detected))) = detected else {
        // It ended, was too slow, or is not allowed any more.
        return reset(stream);
    };
    match detected {
        Detected::Tls(destination) => match connection.tls_host(&destination) {
            Some(host) => {
                let stream = CountedStream::new(stream, head, connection.sandbox.clone());
                tls_terminate::serve(connection, stream, host, &mut rule_changes).await;
            }
            None => {
                passthrough::tls(&connection, stream, &mut rule_changes, &head, destination).await;
            }
        },
        Detected::Http => {
            let stream = CountedStream::new(stream, head, connection.sandbox.clone());
            http::serve(connection, stream, None, &mut rule_changes).await;
        }
        Detected::Other => {
            passthrough::other(&connection, stream, &mut rule_changes, &head).await;
        }
    }
}

/// What a connection speaks, and for TLS the host that it asks for.
enum Detected {
    Tls(Destination),
    Http,
    Other,
}

/// Reads until the protocol is known; `None`: the connection ended before.
async fn read_head(
    connection: &SandboxConnection,
    stream: &mut TcpStream,
    head: &mut Vec<u8>,
) -> Option<Detected> {
    let original = connection.original;
    let names = connection.sandbox.names_of(*original.ip());
    let any_protocol = may_be_unnamed(&connection.sandbox.policy(), original, &names);
    loop {
        match detect(head, !any_protocol) {
            Protocol::Tls => return read_client_hello(stream, head).await,
            Protocol::Http => return Some(Detected::Http),
            Protocol::Other => return Some(Detected::Other),
            Protocol::Undecided => {}
        }
        let read = stream.read_buf(head);
        let count = if any_protocol {
            match timeout(SILENCE_TIMEOUT, read).await {
                Ok(count) => count,
                Err(_) => return Some(Detected::Other),
            }
        } else {
            read.await
        };
        if count.ok()? == 0 {
            return None;
        }
    }
}

/// Reads until the ClientHello is whole.
async fn read_client_hello(stream: &mut TcpStream, head: &mut Vec<u8>) -> Option<Detected> {
    loop {
        match client_hello::parse(head) {
            Ok(Some(hello)) => return Some(Detected::Tls(tls_destination(hello))),
            Ok(None) if head.len() < HELLO_BYTES_MAX => {}
            _ => return Some(Detected::Other),
        }
        if stream.read_buf(head).await.ok()? == 0 {
            return None;
        }
    }
}

fn tls_destination(hello: ClientHello) -> Destination {
    match hello {
        ClientHello { server_name, may_hide_name: true } => Destination::HiddenName(server_name),
        ClientHello { server_name: Some(name), .. } => Destination::Name(name),
        ClientHello { server_name: None, .. } => Destination::NoName,
    }
}
