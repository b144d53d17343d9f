//! The edge: answers sandboxes' names, and carries the connections that names decide on.
//!
//! It is started by the process that owns the links, with four descriptors: 3 control (packets of
//! `isolet_wire::network`), 4 where connections come in, 5 and 6 where names are asked for by
//! UDP and TCP. These were opened beside the sandboxes' links; everything that it opens itself it
//! opens as any program of the host. Who speaks is known by the source address, which the links'
//! filter does not let anybody choose.
//!
//! ```text
//! accept ─► first bytes ─► TLS: the name it asks for ──┐
//!                      ├─► HTTP: Host of each request ─┼─► judge ─► dial ─► carry
//!                      └─► else: the name that was     ┘     └─► tell, refuse
//!                          looked up for the address
//! ```
//!
//! Invariant: nothing is dialled for a sandbox whose address the guard says is closed.
//! Invariant: what is refused is told before whoever asked is answered.
#![forbid(unsafe_code)]

mod control;
mod credentials;
mod dns;
mod header_size;
mod policy;
pub mod privileges;
pub mod proxy;
mod sockets;
mod state;

use state::table::Links;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};

/// What it is started with.
#[derive(Debug)]
pub struct Sockets {
    /// Control: `SOCK_SEQPACKET`.
    pub control: std::os::fd::OwnedFd,
    /// Where connections come in.
    pub carrier: TcpListener,
    /// Names, by UDP.
    pub names: UdpSocket,
    /// Names, by TCP.
    pub names_tcp: TcpListener,
}

/// Works until the other end of `control` is gone.
///
/// # Errors
/// Those of the control socket.
pub async fn run(sockets: Sockets) -> std::io::Result<()> {
    let links = Arc::new(Links::default());
    let carrier = tokio::spawn(proxy::listener::serve(links.clone(), sockets.carrier));
    let names = tokio::spawn(dns::udp::serve(links.clone(), sockets.names));
    let names_tcp = tokio::spawn(dns::tcp::serve(links.clone(), sockets.names_tcp));
    let result = control::serve(&links, sockets.control).await;
    for task in [carrier, names, names_tcp] {
        task.abort();
    }
    result
}
