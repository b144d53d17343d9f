//! `isolet-edge`: started by the process that owns the links, with its sockets as descriptors.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use clap::Parser;
use isolet_edge::{Sockets, privileges, run};
use isolet_sys::seccomp;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::RawFd;

const CONTROL: RawFd = 3;
const CARRIER: RawFd = 4;
const NAMES: RawFd = 5;
const NAMES_TCP: RawFd = 6;
const FILTER: RawFd = 7;
/// Threads that carry: more do not make one sandbox's download faster.
const THREADS_MAX: usize = 4;

/// Answers sandboxes' names and carries their connections. Started by isolet, with descriptors 3
/// to 7: control, carrier, names by UDP, names by TCP, and the system calls that it may make.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The user and group that it becomes when it is started as root.
    #[arg(long, default_value_t = 65_534)]
    id: u32,
}

fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(options.id != 0, "--id 0 is root");
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let take = |number| {
        isolet_sys::inherited_fd::adopt(number)
            .with_context(|| format!("no descriptor {number}: isolet-edge is started by isolet"))
    };
    let (control, carrier) = (take(CONTROL)?, TcpListener::from(take(CARRIER)?));
    let (names, names_tcp) = (UdpSocket::from(take(NAMES)?), TcpListener::from(take(NAMES_TCP)?));
    let filter = seccomp::read(take(FILTER)?).context("cannot read the filter")?;
    isolet_sys::inherited_fd::close_from(FILTER + 1);
    privileges::drop_all(options.id).context("cannot give up privileges")?;
    // While there is one thread: those that follow have it too.
    seccomp::install(&filter).context("cannot take the filter")?;
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.min(THREADS_MAX))
        .enable_all()
        .build()?
        .block_on(async {
            for socket in [&carrier, &names_tcp] {
                socket.set_nonblocking(true)?;
            }
            names.set_nonblocking(true)?;
            let sockets = Sockets {
                control,
                carrier: tokio::net::TcpListener::from_std(carrier)?,
                names: tokio::net::UdpSocket::from_std(names)?,
                names_tcp: tokio::net::TcpListener::from_std(names_tcp)?,
            };
            Ok(run(sockets).await?)
        })
}
