//! The egress proxy: answers the DNS queries of sandboxes, and forwards the connections that the
//! rules decide by the name of the host.
//!
//! The process that owns the veth pairs starts it with four sockets: 3 is the control socket
//! (packets of `isolet_wire::network`), 4 accepts connections, 5 and 6 receive DNS queries by UDP
//! and TCP. They were opened in the network namespace of the sandboxes; every socket that the proxy
//! opens itself is in the namespace of the host. A sandbox is identified by its source address,
//! which the packet filter does not let it choose.
//!
//! ```text
//! accept ─► first bytes ─► TLS: SNI ──────────────────────┐
//!                      ├─► HTTP: Host of each request ────┼─► policy ─► dial ─► forward
//!                      └─► other: names that were         ┘        └─► log, deny
//!                          resolved to the address
//! ```
//!
//! | layer | modules |
//! |---|---|
//! | service | `control`, `proxy`, `dns` |
//! | state of each sandbox | `state`: rules, DNS cache, limits, counters |
//! | decisions and data | `policy`, `credentials`, `header_size`, `sockets` |
//!
//! Invariant: nothing is dialled for a sandbox whose address the guard closes.
//! Invariant: a denial is logged before the client gets its answer.
//!
//! - A query is decided before it is forwarded. Only IPv4 addresses that are not closed are
//!   answered, under the name that was queried, and `dns_cache` remembers which sandbox received
//!   them. A refused query gets `NXDOMAIN` with the reason as an extended error.
//! - A TLS connection is held to its SNI, HTTP to the `Host` of each request. Other protocols may
//!   reach an address that a name with that port resolved to, never on ports 80 and 443.
//! - An allowed name is dialled at the requested address if that was answered for it, else at an
//!   address of its own.
//! - Bytes of TLS and other protocols are copied by `splice`. HTTP is parsed and serialised again
//!   by hyper: a copier that only read heads would have to agree with every server on where a body
//!   ends.
//! - When rules change, connections that they no longer allow are closed.
//! - An encrypted ClientHello is refused where names decide, since its outer name proves nothing.
//! - Credentials within TLS need an authority that the sandbox trusts: one for each sandbox, whose
//!   key exists only in this process. Only hosts with credentials are terminated; the proxy
//!   verifies them with this machine's root certificates, and dials them at addresses that their
//!   names resolved to.
//! - Descriptor 7 is a seccomp program, which the process installs before its first thread, because
//!   the list forbids the `execve` that started it.
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

use state::table::SandboxTable;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};

/// The sockets that the proxy is started with.
#[derive(Debug)]
pub struct Sockets {
    /// The control socket, of type `SOCK_SEQPACKET`.
    pub control: std::os::fd::OwnedFd,
    /// Accepts the sandboxes' connections, which the packet filter redirects to it.
    pub listener: TcpListener,
    /// Receives DNS queries by UDP.
    pub dns_udp: UdpSocket,
    /// Accepts DNS queries by TCP.
    pub dns_tcp: TcpListener,
}

/// Runs until the other end of `control` is closed.
///
/// # Errors
/// The control socket fails.
pub async fn run(sockets: Sockets) -> std::io::Result<()> {
    let sandboxes = Arc::new(SandboxTable::default());
    let proxy = tokio::spawn(proxy::listener::serve(sandboxes.clone(), sockets.listener));
    let dns_udp = tokio::spawn(dns::udp::serve(sandboxes.clone(), sockets.dns_udp));
    let dns_tcp = tokio::spawn(dns::tcp::serve(sandboxes.clone(), sockets.dns_tcp));
    let result = control::serve(&sandboxes, sockets.control).await;
    for task in [proxy, dns_udp, dns_tcp] {
        task.abort();
    }
    result
}
