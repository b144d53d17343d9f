//! `isolet-egress-proxy`, the egress proxy: started by the process that owns the veth pairs, with
//! its sockets as descriptors.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isolet_egress_proxy::{Sockets, privileges, run};
use isolet_sys::seccomp;
use isolet_wire::version::{OLDEST_AGENT, VERSION};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::RawFd;

const CONTROL: RawFd = 3;
const LISTENER: RawFd = 4;
const DNS_UDP: RawFd = 5;
const DNS_TCP: RawFd = 6;
const SECCOMP_FILTER: RawFd = 7;
/// Worker threads: more do not make one sandbox's download faster.
const THREADS_MAX: usize = 4;

/// Answer the DNS queries of sandboxes and forward their connections. Started by isolet with the
/// descriptors 3 to 7: control socket, connections, DNS by UDP, DNS by TCP, and the seccomp filter.
#[derive(Debug, Parser)]
#[command(version)]
struct ProxyOptions {
    /// User and group id to switch to when started as root
    #[arg(long, default_value_t = 65_534)]
    id: u32,
    /// Protocol version of the process that owns the veth pairs
    #[arg(long, hide = true)]
    protocol: u16,
}

fn main() -> Result<()> {
    let options = ProxyOptions::parse();
    ensure!(options.id != 0, "--id must not be 0 (root)");
    ensure!(
        (OLDEST_AGENT..=VERSION).contains(&options.protocol),
        "isolet-launcher speaks protocol version {}, and this isolet-egress-proxy {OLDEST_AGENT} to \
         {VERSION}; install both from one package",
        options.protocol
    );
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let inherited = |number| {
        isolet_sys::inherited_fd::adopt(number).with_context(|| {
            format!("descriptor {number} is not open: only isolet starts isolet-egress-proxy")
        })
    };
    let control = inherited(CONTROL)?;
    let listener = TcpListener::from(inherited(LISTENER)?);
    let dns_udp = UdpSocket::from(inherited(DNS_UDP)?);
    let dns_tcp = TcpListener::from(inherited(DNS_TCP)?);
    let filter =
        seccomp::read(inherited(SECCOMP_FILTER)?).context("cannot read the seccomp filter")?;
    isolet_sys::inherited_fd::close_from(SECCOMP_FILTER + 1);
    privileges::drop_all(options.id).context("cannot drop privileges")?;
    // Before other threads start: they inherit the filter.
    seccomp::install(&filter).context("cannot install the seccomp filter")?;
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.min(THREADS_MAX))
        .enable_all()
        .build()?
        .block_on(async {
            for socket in [&listener, &dns_tcp] {
                socket.set_nonblocking(true)?;
            }
            dns_udp.set_nonblocking(true)?;
            let sockets = Sockets {
                control,
                listener: tokio::net::TcpListener::from_std(listener)?,
                dns_udp: tokio::net::UdpSocket::from_std(dns_udp)?,
                dns_tcp: tokio::net::TcpListener::from_std(dns_tcp)?,
            };
            Ok(run(sockets).await?)
        })
}
