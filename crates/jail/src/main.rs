//! The launcher: one thread, small, root. Takes orders on its standard input (a packet socket
//! from the server), makes sandboxes, and ends with the server. Sandboxes outlive it.

use isolet_jail::{Config, Host, make, missing, scope};
use isolet_wire::launch::{Order, PACKET_BYTES_MAX, Report, encode};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

fn main() {
    isolet_sys::own::close_from(3);
    isolet_sys::exec::ignore_children();
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
    host.groups.leave();
}

fn say(to: &OwnedFd, report: &Report) {
    let _ = send(to, &encode(report), SendFlags::NOSIGNAL);
}

/// One order after the other until the server is gone.
fn serve(host: &Host, orders: &OwnedFd) {
    let mut packet = vec![0_u8; PACKET_BYTES_MAX];
    loop {
        let length = match recv(orders, packet.as_mut_slice(), RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok((_, length)) if length > 0 => length,
            _ => return,
        };
        let Ok(order) = isolet_wire::frame::decode(&packet[..length]) else { return };
        let (name, done) = match order {
            Order::Launch(spec) => {
                let made = make(host, &spec);
                (spec.name, made)
            }
            Order::Scope(order) => {
                let granted = || say(orders, &Report::Granted { name: order.name.clone() });
                let made = scope(host, &order, granted).map(|()| 0);
                (order.name, made)
            }
        };
        let report = match done {
            Ok(pid) => Report::Launched { name, pid },
            Err((step, errno)) => Report::Failed { name, step, errno },
        };
        say(orders, &report);
    }
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
