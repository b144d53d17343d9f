//! The launcher: one thread, small, root. Takes orders on its standard input (a packet socket
//! from the server), makes sandboxes, and ends with the server. Sandboxes outlive it.
//! As `isolet-launcher --links` it is the process that owns links instead.

use isolet_jail::{
    Config, Host, Packet, StepError, create_sandbox, missing, receive_packet, start_scope, veth,
};
use isolet_wire::launch::{Order, Report, encode};
use rustix::net::{RecvFlags, SendFlags, send};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

fn main() {
    isolet_sys::inherited_fd::close_from(3);
    if let Some(options) = links() {
        let Ok(server) = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3) else { return };
        let Ok(null) = std::fs::File::open("/dev/null") else { return };
        let _ = isolet_sys::inherited_fd::dup_to(null.as_fd(), 0);
        return veth::run(options, server);
    }
    isolet_sys::exec::autoreap_children();
    let Some(config) = config() else {
        eprintln!("isolet-launcher is started by isolet serve");
        std::process::exit(2);
    };
    // A copy above the standard ones; what is left of them belongs to nobody inside.
    let Ok(orders) = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3) else { return };
    let lacks = missing();
    let host = if lacks.is_empty() {
        match Host::prepare(config) {
            Ok(host) => Some(host),
            Err((step, error)) => {
                say(&orders, &Report::Ready { missing: vec![format!("{step}: {error}")] });
                None
            }
        }
    } else {
        say(&orders, &Report::Ready { missing: lacks });
        None
    };
    let Some(host) = host else { return };
    say(&orders, &Report::Ready { missing: Vec::new() });
    serve(&host, &orders);
    host.cgroup_root.remove_if_empty();
}

fn say(to: &OwnedFd, report: &Report) {
    let _ = send(to, &encode(report), SendFlags::NOSIGNAL);
}

/// One order after the other until the server is gone.
fn serve(host: &Host, orders: &OwnedFd) {
    loop {
        let Packet { bytes, fd: network } = match receive_packet(orders, RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(Some(packet)) => packet,
            _ => return,
        };
        let Ok(order) = isolet_wire::frame::decode(&bytes) else { return };
        let (name, done) = match order {
            Order::Launch(spec) => {
                let made = create_sandbox(host, &spec, network);
                (spec.name, made)
            }
            Order::Scope(order) => {
                let granted = || say(orders, &Report::Granted { name: order.name.clone() });
                let made = start_scope(host, &order, granted).map(|()| 0);
                (order.name, made)
            }
        };
        let report = match done {
            Ok(pid) => Report::Launched { name, pid },
            Err(StepError { step, errno }) => Report::Failed { name, step, errno },
        };
        say(orders, &report);
    }
}

/// From the command line, as `Links::start` writes it; `None`: this is to be a launcher.
fn links() -> Option<veth::Options> {
    let mut args = std::env::args().skip(1);
    (args.next()? == "--links").then_some(())?;
    let mut next = |flag: &str| (args.next()? == flag).then(|| args.next()).flatten();
    let data_dir = PathBuf::from(next("--data")?);
    let edge = PathBuf::from(next("--edge")?);
    let edge_user = next("--edge-user")?.parse().ok()?;
    Some(veth::Options { data_dir, edge, edge_user })
}

/// From the command line, as `Launcher::start` writes it.
fn config() -> Option<Config> {
    let mut args = std::env::args().skip(1);
    let mut next = |flag: &str| (args.next()? == flag).then(|| args.next()).flatten();
    let data_dir = PathBuf::from(next("--data")?);
    let agent = PathBuf::from(next("--agent")?);
    let uid_base = next("--uid-base")?.parse().ok()?;
    let cgroup = next("--cgroup")?;
    let stall_ms = next("--stall-ms")?.parse().ok()?;
    Some(Config { data_dir, launcher: PathBuf::new(), agent, uid_base, cgroup, stall_ms })
}
