//! Connects to ports of the sandbox on behalf of the server, and lists listening sockets.

use isolet_wire::port::{LISTENERS_MAX, Listener};
use isolet_wire::response::RefusalReason;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Timeout of a dial, for a listener whose queue is full.
pub(crate) const DIAL_WAIT: Duration = Duration::from_secs(10);
/// Addresses to try in order: most servers listen on the first one, and Node's often only on the
/// second.
const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// Maximum amount that is read from each table of sockets, in bytes.
const TABLE_BYTES_MAX: usize = 512 * 1024;

/// A connection in progress.
#[derive(Debug)]
pub(crate) struct Dial {
    /// The connection of the server that requested the dial.
    pub(crate) conn: u64,
    /// Deadline of the dial.
    pub(crate) due: Instant,
    /// The socket that is being connected.
    pub(crate) fd: OwnedFd,
    port: u16,
    tried: usize,
}

/// The progress of a dial.
#[derive(Debug)]
pub(crate) enum DialState {
    /// The result is unknown; `true` means that the descriptor has changed.
    Pending(bool),
    /// The socket is connected.
    Connected,
    Refused(RefusalReason, String),
}

impl Dial {
    /// Starts a dial; `Err` has the meaning of [`DialState::Refused`].
    pub(crate) fn begin(
        conn: u64,
        port: u16,
        now: Instant,
    ) -> Result<Self, (RefusalReason, String)> {
        let (fd, tried) = next(port, 0)?;
        Ok(Self { conn, due: now + DIAL_WAIT, fd, port, tried })
    }

    /// Checks the progress without waiting, and tries the next address after a failure.
    pub(crate) fn poll(&mut self) -> DialState {
        let mut changed = false;
        loop {
            match state(&self.fd) {
                None => return DialState::Pending(changed),
                Some(Ok(())) if !is_self_connected(&self.fd) => return DialState::Connected,
                Some(Ok(()) | Err(_)) => match next(self.port, self.tried) {
                    Ok((fd, tried)) => {
                        (self.fd, self.tried) = (fd, tried);
                        changed = true;
                    }
                    Err((reason, message)) => return DialState::Refused(reason, message),
                },
            }
        }
    }

    /// The error of a dial whose deadline has passed.
    pub(crate) fn timeout_error(&self) -> (RefusalReason, String) {
        let port = self.port;
        (RefusalReason::NoAnswer, format!("what listens on port {port} takes no connection"))
    }
}

/// A socket that is being connected to the next address that does not fail at once.
fn next(port: u16, mut tried: usize) -> Result<(OwnedFd, usize), (RefusalReason, String)> {
    while let Some(address) = ADDRESSES.get(tried) {
        tried += 1;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = match rustix::net::socket_with(family, SocketType::STREAM, flags, None) {
            Ok(fd) => fd,
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                return Err((RefusalReason::ResourcesExhausted, format!("no socket: {errno}")));
            }
            Err(_) => continue,
        };
        match rustix::net::connect(&fd, &SocketAddr::new(*address, port)) {
            Ok(()) | Err(Errno::INPROGRESS) => return Ok((fd, tried)),
            Err(_) => {}
        }
    }
    Err((RefusalReason::NotListening, format!("nothing listens on port {port}")))
}

/// The result of the connection; `None` while it is unknown.
fn state(fd: &OwnedFd) -> Option<Result<(), Errno>> {
    let mut one = [PollFd::new(fd, PollFlags::OUT)];
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut one, Some(&zero)) {
        Ok(0) | Err(Errno::INTR) => None,
        Ok(_) => Some(sockopt::socket_error(fd).and_then(|error| error)),
        Err(errno) => Some(Err(errno)),
    }
}

/// If no program listens, the kernel may choose the same port for the near end and connect a socket
/// to itself.
fn is_self_connected(fd: &OwnedFd) -> bool {
    let near = rustix::net::getsockname(fd).ok();
    near == rustix::net::getpeername(fd).ok().flatten()
}

/// The listening sockets of this network namespace, sorted. They come first in the kernel's tables,
/// so the connections after them are not read.
pub(crate) fn listening() -> Vec<Listener> {
    let mut all = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        if let Ok(file) = std::fs::File::open(table) {
            read(file, &mut all);
        }
    }
    all.sort();
    all.dedup();
    all.truncate(LISTENERS_MAX);
    all
}

fn read(file: impl std::io::Read, into: &mut Vec<Listener>) {
    use std::io::BufRead;
    let mut lines = std::io::BufReader::new(file.take(TABLE_BYTES_MAX as u64)).lines();
    // The first line names the columns.
    let _ = lines.next();
    for line in lines.map_while(Result::ok) {
        match listener(&line) {
            Some(listener) => into.push(listener),
            None => return,
        }
    }
}

/// Parses one line of the table; `None` for anything but a listening socket.
fn listener(line: &str) -> Option<Listener> {
    let mut parts = line.split_ascii_whitespace().skip(1);
    let near = parts.next()?;
    let state = parts.nth(1)?;
    if state != "0A" {
        return None;
    }
    let (address, port) = near.split_once(':')?;
    let mut words = [0; 4];
    let count = address.len() / 8;
    for (at, word) in words.iter_mut().enumerate().take(count) {
        *word = u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?;
    }
    // Each word is in the byte order of the machine, as read from the network bytes.
    let address = match count {
        1 => IpAddr::V4(Ipv4Addr::from(words[0].to_ne_bytes())),
        4 => {
            let mut bytes = [0; 16];
            for (at, word) in words.iter().enumerate() {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(Listener { port: u16::from_str_radix(port, 16).ok()?, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: O7.
    #[test]
    fn the_kernels_table_is_read_up_to_the_first_connection() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1\n\
            1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 2\n\
            2: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000 0 0 3\n\
            3: 0100007F:0001 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4\n";
        let six = "  sl  local_address rem_address   st\n\
            0: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 0\n\
            garbage\n";
        let mut all = Vec::new();
        read(table.as_bytes(), &mut all);
        read(six.as_bytes(), &mut all);
        let said = all.iter().map(|one| SocketAddr::new(one.address, one.port).to_string());
        assert_eq!(said.collect::<Vec<_>>(), ["127.0.0.1:8080", "0.0.0.0:22", "[::1]:3000"]);
    }

    /// Promises: O7.
    #[test]
    fn a_port_that_listens_is_connected_and_listed_and_another_refused() {
        let open = |address: &str| std::net::TcpListener::bind(address);
        let four = open("127.0.0.1:0").expect("a port");
        let six = open("[::1]:0").ok();
        let now = Instant::now();
        let listeners = [Some(&four), six.as_ref()];
        for listener in listeners.into_iter().flatten() {
            let address = listener.local_addr().expect("its address");
            let mut dial = Dial::begin(1, address.port(), now).expect("begun");
            while let DialState::Pending(_) = dial.poll() {}
            assert!(matches!(dial.poll(), DialState::Connected));
            let wanted = Listener { port: address.port(), address: address.ip() };
            assert!(listening().contains(&wanted), "{wanted:?}");
        }
        let gone = four.local_addr().expect("its address").port();
        drop(four);
        let refused = match Dial::begin(1, gone, now) {
            Err((reason, _)) => reason,
            Ok(mut dial) => loop {
                match dial.poll() {
                    DialState::Pending(_) => {}
                    DialState::Refused(reason, _) => break reason,
                    DialState::Connected => panic!("nothing listens"),
                }
            },
        };
        assert_eq!(refused, RefusalReason::NotListening);
    }
}
